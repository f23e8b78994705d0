// The YAML of StepCosts. yaml-cpp reports malformed files by exceptions; they end here.

#include <array>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/cost/step_costs.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme-step-costs-1";
constexpr size_t kMaxStages = 1 << 14;
constexpr size_t kMaxListed = 1 << 16;

// The keys of a chunk, each a number.
struct ChunkKey {
  const char* name;
  int64_t ChunkCosts::* member;
};
constexpr std::array kChunkKeys = {
    ChunkKey{"forward_ns", &ChunkCosts::forward},
    ChunkKey{"backward_ns", &ChunkCosts::backward},
    ChunkKey{"input_gradient_ns", &ChunkCosts::input_gradient},
    ChunkKey{"weight_gradient_ns", &ChunkCosts::weight_gradient},
    ChunkKey{"recompute_ns", &ChunkCosts::recompute},
    ChunkKey{"activation_bytes", &ChunkCosts::activation_bytes},
    ChunkKey{"gradient_bytes", &ChunkCosts::gradient_bytes},
    ChunkKey{"kept_bytes", &ChunkCosts::kept_bytes},
    ChunkKey{"kept_input_bytes", &ChunkCosts::kept_input_bytes},
    ChunkKey{"deferred_bytes", &ChunkCosts::deferred_bytes},
    ChunkKey{"transient_bytes", &ChunkCosts::transient_bytes},
};

Result<int64_t> read_number(const YAML::Node& map, const std::string& key) {
  if (!map[key]) return 0;
  const auto number = map[key].as<int64_t>();
  if (number >= 0 && number <= kMaxStepCost) return number;
  return Error{
      fmt::format("line {}: {} is {}, not 0 to {}", map[key].Mark().line + 1, key, number, kMaxStepCost)};
}

Result<std::vector<int64_t>> read_numbers(const YAML::Node& map, const std::string& key) {
  std::vector<int64_t> numbers;
  if (!map[key]) return numbers;
  if (map[key].size() > kMaxListed) {
    return Error{fmt::format("line {}: {} has {} numbers, at most {} are read",
                             map[key].Mark().line + 1, key, map[key].size(), kMaxListed)};
  }
  numbers = map[key].as<std::vector<int64_t>>();
  for (const int64_t number : numbers) {
    if (number >= 0 && number <= kMaxStepCost) continue;
    return Error{fmt::format("line {}: {} has {}, not 0 to {}", map[key].Mark().line + 1, key,
                             number, kMaxStepCost)};
  }
  return numbers;
}

Result<StageCosts> read_stage(const YAML::Node& node) {
  StageCosts stage;
  if (!node.IsMap() || !node["chunks"] || !node["chunks"].IsSequence() ||
      node["chunks"].size() == 0) {
    return Error{fmt::format("line {}: a stage needs 'chunks', a list of their costs",
                             node.Mark().line + 1)};
  }
  if (node["chunks"].size() > kMaxListed) {
    return Error{fmt::format("line {}: a stage has {} chunks, at most {} are read",
                             node["chunks"].Mark().line + 1, node["chunks"].size(), kMaxListed)};
  }
  for (const YAML::Node& each : node["chunks"]) {
    ChunkCosts& chunk = stage.chunks.emplace_back();
    for (const ChunkKey& key : kChunkKeys) {
      TRIREME_TRY(chunk.*key.member, read_number(each, key.name));
    }
  }
  TRIREME_TRY(stage.update, read_number(node, "update_ns"));
  TRIREME_TRY(stage.bucket_bytes, read_numbers(node, "bucket_bytes"));
  TRIREME_TRY(stage.static_bytes, read_number(node, "static_bytes"));
  return stage;
}

Result<StepCosts> read_costs(const YAML::Node& root) {
  if (!root.IsMap() || root["format"].as<std::string>("") != kFormat) {
    return Error{fmt::format("it is no list of step costs (format: {} is missing)", kFormat)};
  }
  if (!root["stages"] || !root["stages"].IsSequence() || root["stages"].size() == 0 ||
      root["stages"].size() > kMaxStages) {
    return Error{fmt::format("it needs 'stages', a list of 1 to {}", kMaxStages)};
  }
  StepCosts costs;
  for (const YAML::Node& each : root["stages"]) {
    TRIREME_TRY(StageCosts stage, read_stage(each));
    costs.stages.push_back(std::move(stage));
  }
  TRIREME_TRY(costs.tied_bytes, read_numbers(root, "tied_bytes"));
  TRIREME_TRY(costs.scalar_bytes, read_number(root, "scalar_bytes"));
  return costs;
}

}  // namespace

std::string to_text(const StepCosts& costs) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value << kFormat;
  out << YAML::Key << "stages" << YAML::Value << YAML::BeginSeq;
  for (const StageCosts& stage : costs.stages) {
    out << YAML::BeginMap << YAML::Key << "chunks" << YAML::Value << YAML::BeginSeq;
    for (const ChunkCosts& chunk : stage.chunks) {
      out << YAML::BeginMap;
      for (const ChunkKey& key : kChunkKeys) {
        out << YAML::Key << key.name << YAML::Value << chunk.*key.member;
      }
      out << YAML::EndMap;
    }
    out << YAML::EndSeq << YAML::Key << "update_ns" << YAML::Value << stage.update;
    out << YAML::Key << "bucket_bytes" << YAML::Value << YAML::Flow << stage.bucket_bytes;
    out << YAML::Key << "static_bytes" << YAML::Value << stage.static_bytes << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::Key << "tied_bytes" << YAML::Value << YAML::Flow << costs.tied_bytes;
  out << YAML::Key << "scalar_bytes" << YAML::Value << costs.scalar_bytes << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Result<StepCosts> parse_step_costs(std::string_view text) {
  if (!is_utf8(text)) return Error{"it is not UTF-8 text"};
  try {
    return read_costs(YAML::Load(std::string(text)));
  } catch (const YAML::BadConversion& exception) {
    return Error{fmt::format("line {}: the value is not a whole number", exception.mark.line + 1)};
  } catch (const YAML::Exception& exception) {
    return Error{
        fmt::format("line {} is not YAML ({})", exception.mark.line + 1, one_line(exception.msg))};
  }
}

}  // namespace trireme
