// The YAML and the table of a Plan. yaml-cpp reports malformed files by exceptions; they end here.

#include <algorithm>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/human_bytes.h"
#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/base/yaml_keys.h"
#include "trireme/plan/plan.h"

namespace trireme {
namespace {

constexpr const char* kPlacementLooped = "looped";
constexpr const char* kPlacementV = "v";

PlanStage read_stage(const YAML::Node& node) {
  PlanStage stage;
  stage.first_node = text_of(node["first_node"]);
  stage.first_module = text_of(node["first_module"]);
  stage.last_module = text_of(node["last_module"]);
  stage.num_parameters = node["num_parameters"].as<int64_t>(0);
  stage.flops_share = node["flops_share"].as<double>(0);
  stage.bytes_in = node["bytes_in"].as<int64_t>(0);
  stage.bytes_out = node["bytes_out"].as<int64_t>(0);
  const YAML::Node inputs = node["inputs"];
  if (inputs && !inputs.IsSequence()) throw YAML::BadConversion(inputs.Mark());
  for (const YAML::Node& input : inputs) stage.inputs.push_back(text_of(input));
  return stage;
}

// "1", or with chunks "1.0": the stage and its chunk, as a schedule writes them.
std::string place(const Plan& plan, int32_t virtual_stage) {
  const int32_t pp = std::max(plan.pp, 1);  // a plan that is not verified may say anything
  const int32_t chunk = virtual_stage / pp;
  const int32_t stage = place_within_chunk(plan.placement, pp, chunk, virtual_stage % pp);
  return plan.chunks == 1 ? fmt::format("{}", stage) : fmt::format("{}.{}", stage, chunk);
}

// A list of the lines of a text, each of which ends with a line break.
void write_lines(YAML::Emitter& out, std::string_view text) {
  out << YAML::BeginSeq;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    out << std::string(text.substr(begin, end - begin));
    begin = end == std::string_view::npos ? text.size() : end + 1;
  }
  out << YAML::EndSeq;
}

}  // namespace

std::string to_text(const Plan& plan) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value << "trireme-plan-1";
  out << YAML::Key << "model" << YAML::Value << plan.model;
  out << YAML::Key << "num_nodes" << YAML::Value << plan.num_nodes;
  out << YAML::Key << "pp" << YAML::Value << plan.pp;
  out << YAML::Key << "dp" << YAML::Value << plan.dp;
  out << YAML::Key << "micro_batches" << YAML::Value << plan.micro_batches;
  out << YAML::Key << "schedule" << YAML::Value << plan.schedule;
  if (plan.chunks != 1) out << YAML::Key << "chunks" << YAML::Value << plan.chunks;
  if (plan.placement == Placement::kV) {
    out << YAML::Key << "placement" << YAML::Value << kPlacementV;
  }
  if (plan.communication != Plan().communication) {
    out << YAML::Key << "communication" << YAML::Value << plan.communication;
  }
  if (!plan.order.empty()) write_lines(out << YAML::Key << "order" << YAML::Value, plan.order);
  if (plan.bucket_bytes != kDefaultBucketBytes) {
    out << YAML::Key << "bucket_bytes" << YAML::Value << plan.bucket_bytes;
  }
  if (plan.sparse != SparseChoice::kAuto) {
    out << YAML::Key << "sparse" << YAML::Value << std::string(to_text(plan.sparse));
  }
  if (!plan.extra_warm_ups.empty()) {
    out << YAML::Key << "extra_warm_ups" << YAML::Value << YAML::Flow << plan.extra_warm_ups;
  }
  out << YAML::Key << "stages" << YAML::Value << YAML::BeginSeq;
  for (const PlanStage& stage : plan.stages) {
    out << YAML::BeginMap << YAML::Key << "first_node" << YAML::Value << stage.first_node;
    out << YAML::Key << "first_module" << YAML::Value << stage.first_module;
    out << YAML::Key << "last_module" << YAML::Value << stage.last_module;
    out << YAML::Key << "num_parameters" << YAML::Value << stage.num_parameters;
    out << YAML::Key << "flops_share" << YAML::Value << fmt::format("{}", stage.flops_share);
    out << YAML::Key << "bytes_in" << YAML::Value << stage.bytes_in;
    out << YAML::Key << "bytes_out" << YAML::Value << stage.bytes_out;
    out << YAML::Key << "inputs" << YAML::Value << YAML::Flow << stage.inputs << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Result<Plan> parse_plan(std::string_view text) {
  // The emitter could not write such strings again.
  if (!is_utf8(text)) return Error{"it is not UTF-8 text"};
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap() || root["format"].as<std::string>("") != "trireme-plan-1") {
      return Error{"it is not a plan of trireme plan (format: trireme-plan-1 is missing)"};
    }
    for (const char* key : {"num_nodes", "pp", "dp", "micro_batches", "schedule", "stages"}) {
      if (!root[key]) return Error{fmt::format("it has no '{}'; make the plan again", key)};
    }
    size_t index = 0;
    for (const YAML::Node& stage : root["stages"]) {
      if (!stage.IsMap() || !stage["first_node"]) {
        return Error{fmt::format("stage {} has no 'first_node'; make the plan again", index)};
      }
      ++index;
    }
    Plan plan;
    plan.model = text_of(root["model"]);
    plan.num_nodes = root["num_nodes"].as<int64_t>();
    plan.pp = root["pp"].as<int32_t>();
    plan.dp = root["dp"].as<int32_t>();
    plan.micro_batches = root["micro_batches"].as<int32_t>();
    plan.schedule = text_of(root["schedule"]);
    plan.chunks = root["chunks"].as<int32_t>(1);
    const auto placement = root["placement"].as<std::string>(kPlacementLooped);
    if (placement != kPlacementLooped && placement != kPlacementV) {
      return Error{fmt::format("its placement is {}, which is neither {} nor {}",
                               in_quotes(placement), kPlacementLooped, kPlacementV)};
    }
    plan.placement = placement == kPlacementV ? Placement::kV : Placement::kLooped;
    for (const YAML::Node& line : root["order"]) plan.order += text_of(line) + "\n";
    plan.extra_warm_ups = root["extra_warm_ups"].as<std::vector<int32_t>>(std::vector<int32_t>());
    plan.bucket_bytes = root["bucket_bytes"].as<int64_t>(kDefaultBucketBytes);
    if (root["sparse"]) {
      TRIREME_TRY(plan.sparse, parse_sparse_choice(text_of(root["sparse"])));
    }
    if (root["communication"]) plan.communication = text_of(root["communication"]);
    for (const YAML::Node& stage : root["stages"]) plan.stages.push_back(read_stage(stage));
    return plan;
  } catch (const WrongYaml& wrong) {
    return Error{fmt::format("line {}: {}", wrong.mark.line + 1, wrong.what)};
  } catch (const YAML::BadConversion& exception) {
    return Error{fmt::format("line {}: the value is of another kind than trireme plan writes",
                             exception.mark.line + 1)};
  } catch (const YAML::Exception& exception) {
    return Error{
        fmt::format("line {} is not YAML ({})", exception.mark.line + 1, one_line(exception.msg))};
  }
}

std::string to_table(const Plan& plan) {
  const std::string chunks = plan.chunks == 1 ? "" : fmt::format(" of {} chunks", plan.chunks);
  std::string schedule = plan.schedule;
  if (!plan.extra_warm_ups.empty()) {
    schedule += fmt::format(" with extra warm-ups {}", fmt::join(plan.extra_warm_ups, ","));
  }
  std::string table = fmt::format(
      "{}: {} stages{} x {} replicas, {} micro-batches a replica, schedule {}, communication "
      "{}\n\n",
      plan.model, plan.pp, chunks, plan.dp, plan.micro_batches, schedule, plan.communication);
  size_t width = 10;
  for (const PlanStage& stage : plan.stages) {
    width = std::max(width, stage.first_module.size() + stage.last_module.size() + 4);
  }
  table += fmt::format("{:>5}  {:<{}}  {:>12}  {:>6}  {:>10}  {:>10}  {}\n", "stage", "modules",
                       width, "parameters", "flops", "in/sample", "out/sample", "reads");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlanStage& stage = plan.stages[i];
    const std::string modules = stage.first_module == stage.last_module
                                    ? stage.first_module
                                    : stage.first_module + " .. " + stage.last_module;
    table += fmt::format("{:>5}  {:<{}}  {:>12}  {:>5.1f}%  {:>10}  {:>10}  {}\n",
                         place(plan, static_cast<int32_t>(i)), modules, width, stage.num_parameters,
                         stage.flops_share * 100, human_bytes(stage.bytes_in),
                         human_bytes(stage.bytes_out), fmt::join(stage.inputs, ", "));
  }
  return table;
}

}  // namespace trireme
