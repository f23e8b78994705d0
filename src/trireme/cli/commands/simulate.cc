// `trireme simulate`: what a step of a schedule would cost on a cluster; nothing runs.

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/command.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/validators.h"
#include "trireme/cost/spec_step_costs.h"
#include "trireme/import/mapped_file.h"
#include "trireme/import/output_path.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/verify.h"
#include "trireme/sim/simulation_text.h"

namespace trireme {
namespace {

struct SimulateRequest {
  std::string schedule;
  std::string cluster;
  std::string costs;
  std::string model;  // instead, by its sizes
  std::string dtype = "bfloat16";
  int32_t stages = 1;
  int32_t chunks = 1;
  int32_t samples = 1;  // of a micro-batch
  int32_t replicas = 1;
  int32_t micro_batches = 1;
  std::string collectives = "ring";
  SimOptions options;
  std::string output;
  bool wants_json = false;
};

const std::map<std::string, CollectiveAlgorithm> kCollectives = {
    {"ring", CollectiveAlgorithm::kRing},
    {"tree", CollectiveAlgorithm::kTree},
    {"halving-doubling", CollectiveAlgorithm::kHalvingDoubling},
    {"hierarchical", CollectiveAlgorithm::kHierarchical}};

template <typename Value>
Result<Value> read_file(const std::string& path, Result<Value> (*parse)(std::string_view)) {
  TRIREME_TRY(const MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  Result<Value> value = parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return value.ok() ? std::move(value) : while_doing(path, value.error());
}

const ScheduleBuilder* builder_of(const std::string& name) {
  const auto builders = schedule_builders();
  const auto found = std::ranges::find(builders, name, &ScheduleBuilder::name);
  // `text` is the schedule of a file, which is given by its path.
  return found == builders.end() || found->name == "text" ? nullptr : &*found;
}

std::string builder_names() {
  std::string names;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (builder_of(std::string(builder.name)) == nullptr) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", builder.name);
  }
  return names;
}

// By the analytic model, on the devices that the ranks have.
Result<StepCosts> costs_of_model(const SimulateRequest& request, const Cluster& cluster) {
  TRIREME_TRY(const ModelSpec spec, parse_model_spec(request.model));
  TRIREME_TRY(verify_model_spec(spec));
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  const size_t num_ranks =
      std::min(devices.size(), static_cast<size_t>(int64_t{request.stages} * request.replicas));
  for (size_t r = 1; r < num_ranks; ++r) {
    if (devices[r] == devices[0]) continue;
    return Error{
        fmt::format("rank {} has a device of kind {} and rank 0 one of kind {}; --model "
                    "is for devices of one kind, give --costs",
                    r, in_quotes(devices[r]->name), in_quotes(devices[0]->name))};
  }
  TRIREME_TRY(const DeviceModel device, device_model_of(*devices[0], request.dtype));
  const TrainingLayout layout{
      .dp = request.replicas,
      .pp = request.stages,
      .micro_batch = request.samples,
      .global_batch = int64_t{request.samples} * request.micro_batches * request.replicas};
  const ScheduleBuilder& builder = *builder_of(request.schedule);
  const SpecChunks chunks{
      .chunks = builder.num_chunks == kAnyChunks ? request.chunks : builder.num_chunks,
      .placement = builder.placement};
  return step_costs_of_spec(spec, layout, chunks, device, {});
}

// What the orders of some builders are found from: the longest passes.
PassCosts pass_costs_of(const StepCosts& costs) {
  PassCosts longest{
      .forward = 0, .backward = 0, .input_gradient = 0, .weight_gradient = 0, .recompute = 0};
  const auto raise = [](int64_t& cost, SimTime time) {
    cost = std::clamp(time, cost, kMaxPassCost);
  };
  for (const StageCosts& stage : costs.stages) {
    for (const ChunkCosts& chunk : stage.chunks) {
      raise(longest.forward, chunk.forward);
      raise(longest.backward, chunk.backward);
      raise(longest.input_gradient, chunk.input_gradient);
      raise(longest.weight_gradient, chunk.weight_gradient);
      raise(longest.recompute, chunk.recompute);
    }
  }
  return longest;
}

// The stages, their chunks and the buckets are those that have costs.
Result<Schedule> schedule_of(const SimulateRequest& request, const StepCosts& costs) {
  if (builder_of(request.schedule) == nullptr) {
    Result<Schedule> schedule = read_file(request.schedule, parse_schedule);
    if (!schedule.ok()) {
      return Error{fmt::format("{}, and no schedule by name: {}", schedule.error().message,
                               builder_names())};
    }
    const Status verified = verify_schedule(schedule.value());
    return verified.ok() ? std::move(schedule) : while_doing(request.schedule, verified.error());
  }
  if (!costs.tied_bytes.empty() && request.model.empty()) {
    return Error{
        fmt::format("{} has tied_bytes, but a schedule by name ties nothing; give the "
                    "schedule as a file with tied=",
                    request.costs)};
  }
  ScheduleOptions options{.num_stages = static_cast<int32_t>(costs.stages.size()),
                          .num_micro_batches = std::vector<int32_t>(
                              static_cast<size_t>(request.replicas), request.micro_batches),
                          .num_chunks = static_cast<int32_t>(costs.stages[0].chunks.size()),
                          .costs = pass_costs_of(costs)};
  // A model's embedding and its head.
  if (!costs.tied_bytes.empty()) options.tied_groups = {{0, request.stages - 1}};
  for (const StageCosts& stage : costs.stages) {
    options.num_buckets.push_back(
        request.replicas == 1 ? 0 : static_cast<int32_t>(stage.bucket_bytes.size()));
  }
  return build_schedule(request.schedule, options);
}

Result<std::string> run_simulate(const SimulateRequest& request) {
  TRIREME_TRY(check_distinct({{"-o", request.output}}, {{"SCHEDULE", request.schedule},
                                                        {"--cluster", request.cluster},
                                                        {"--costs", request.costs}}));
  TRIREME_TRY(check_writable("-o", request.output, WriteKind::kWhole));
  TRIREME_TRY(const Cluster cluster, read_file(request.cluster, parse_cluster));
  if (const Status status = verify_cluster(cluster); !status.ok()) {
    return while_doing(request.cluster, status.error());
  }
  TRIREME_TRY(const StepCosts costs, request.model.empty()
                                         ? read_file(request.costs, parse_step_costs)
                                         : costs_of_model(request, cluster));
  TRIREME_TRY(const Schedule schedule, schedule_of(request, costs));
  SimOptions options = request.options;
  options.collectives = kCollectives.at(request.collectives);
  options.records_events = !request.output.empty();
  TRIREME_TRY(const Simulation simulation, simulate(schedule, costs, cluster, options));
  options.records_events = false;
  options.has_free_network = true;
  TRIREME_TRY(const Simulation free, simulate(schedule, costs, cluster, options));
  if (!request.output.empty())
    TRIREME_TRY(write_whole(request.output, to_text(simulation.timeline)));
  return request.wants_json ? simulation_json(simulation, free.step, cluster)
                            : simulation_table(simulation, free.step, cluster);
}

}  // namespace

RequestMaker add_simulate(CLI::App& app) {
  const auto request = std::make_shared<SimulateRequest>();
  app.add_option("SCHEDULE", request->schedule,
                 fmt::format("{}, or a file with a schedule's text", builder_names()))
      ->required()
      ->check(not_empty());
  app.add_option("--cluster", request->cluster,
                 "hosts, devices and links as YAML, such as those of examples/clusters")
      ->required()
      ->check(not_empty());
  app.add_option("--costs", request->costs,
                 "what the passes of each stage take, send and keep, as YAML, such as those of "
                 "examples/costs")
      ->check(not_empty());
  app.add_option("--model", request->model,
                 "instead of --costs, a model by its sizes, which the analytic model costs: "
                 "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257")
      ->check(not_empty());
  CLI::Option* stages =
      app.add_option("--pp", request->stages, "stages of --model [1]")->check(positive_count());
  CLI::Option* chunks = app.add_option("--chunks", request->chunks,
                                       "pieces of --model a rank, where the schedule "
                                       "leaves it open [1]")
                            ->check(positive_count());
  CLI::Option* samples =
      app.add_option("--micro-batch", request->samples, "samples of a micro-batch of --model [1]")
          ->check(positive_count());
  CLI::Option* dtype =
      app.add_option("--dtype", request->dtype, "of the products of --model [bfloat16]")
          ->check(not_empty());
  CLI::Option* replicas = app.add_option("--dp", request->replicas, "replicas of all stages [1]")
                              ->check(positive_count());
  CLI::Option* micro_batches =
      app.add_option("--micro-batches", request->micro_batches, "of each replica [1]")
          ->check(positive_count());
  app.add_option("--collectives", request->collectives, "how gradients are summed [ring]")
      ->check(CLI::IsMember({"ring", "tree", "halving-doubling", "hierarchical"}));
  app.add_flag_callback(
      "--eager", [request] { request->options.transfers = TransferMode::kEager; },
      "a transfer does not wait for its receive");
  app.add_flag_callback(
      "--transfers-first", [request] { request->options.sharing = LinkSharing::kTransfersFirst; },
      "links serve transfers between stages before sums of gradients");
  app.add_option("--jitter", request->options.jitter,
                 "deviation of the logarithm of each pass's time, 0 to 1 [0]")
      ->check(number());
  app.add_option("--seed", request->options.seed, "of the jitter [0]")->check(whole_number(0));
  app.add_option("-o,--output", request->output, "write the timeline, for `trireme report`")
      ->check(not_empty());
  app.add_flag("--json", request->wants_json, "print the result as JSON");
  return [=]() -> Result<Request> {
    if (request->costs.empty() == request->model.empty()) {
      return Error{"simulate needs --costs or --model, and not both"};
    }
    for (const CLI::Option* option : {stages, chunks, samples, dtype}) {
      if (request->costs.empty() || option->count() == 0) continue;
      return Error{fmt::format("--costs says what {} says; leave it out", option->get_name())};
    }
    const bool is_named = builder_of(request->schedule) != nullptr;
    for (const CLI::Option* option : {replicas, micro_batches}) {
      if (is_named || option->count() == 0) continue;
      return Error{fmt::format("a schedule from a file says what {} says; leave it out",
                               option->get_name())};
    }
    if (!is_named && !request->model.empty()) {
      return Error{fmt::format("--model needs a schedule by name: {}", builder_names())};
    }
    return Request([request] { return run_simulate(*request); });
  };
}

}  // namespace trireme
