// `trireme simulate`: what a step of a schedule would cost on a cluster; nothing runs.

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/command.h"
#include "trireme/cli/commands/optimizer_options.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/predict.h"
#include "trireme/cli/read_text.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cli/validators.h"
#include "trireme/cost/spec_step_costs.h"
#include "trireme/import/archive.h"
#include "trireme/import/output_path.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/verify.h"
#include "trireme/sim/simulation_text.h"

namespace trireme {
namespace {

struct SimulateRequest {
  std::string schedule;  // of a model in an archive: the archive
  PlanChoice plan;       // of such a model
  PredictionSources sources;
  OptimizerOptions optimizer;
  bool clips_norm = false;
  std::string costs;
  std::string model;  // instead, by its sizes
  std::string dtype = "bfloat16";
  int32_t samples = 1;  // of a micro-batch
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

int32_t num_micro_batches(const SimulateRequest& request) {
  return request.plan.micro_batches.value_or(1);
}

bool is_archive(const std::string& name) { return name.ends_with(".pt2"); }

// By the analytic model, on the devices that the ranks have.
Result<StepCosts> costs_of_model(const SimulateRequest& request, const Cluster& cluster) {
  TRIREME_TRY(const ModelSpec spec, parse_model_spec(request.model));
  TRIREME_TRY(verify_model_spec(spec));
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  const size_t num_ranks =
      std::min(devices.size(), static_cast<size_t>(int64_t{request.plan.pp} * request.plan.dp));
  for (size_t r = 1; r < num_ranks; ++r) {
    if (devices[r] == devices[0]) continue;
    return Error{
        fmt::format("rank {} has a device of kind {} and rank 0 one of kind {}; --model "
                    "is for devices of one kind, give --costs",
                    r, in_quotes(devices[r]->name), in_quotes(devices[0]->name))};
  }
  TRIREME_TRY(const DeviceModel device, device_model_of(*devices[0], request.dtype));
  const TrainingLayout layout{
      .dp = request.plan.dp,
      .pp = request.plan.pp,
      .micro_batch = request.samples,
      .global_batch = int64_t{request.samples} * num_micro_batches(request) * request.plan.dp};
  const ScheduleBuilder& builder = *builder_of(request.schedule);
  const SpecChunks chunks{.chunks = builder.num_chunks == kAnyChunks
                                        ? request.plan.chunks.value_or(1)
                                        : builder.num_chunks,
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
    Result<Schedule> schedule = read_text(request.schedule, parse_schedule);
    if (!schedule.ok()) {
      return Error{fmt::format("{}, and no schedule by name: {}", schedule.error().message,
                               builder_names())};
    }
    Status verified = verify_schedule(schedule.value());
    if (verified.ok() && schedule.value().num_weight_versions != 1) {
      verified =
          Error{"a step with versions=2 runs with its neighbours; name the schedule instead"};
    }
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
                              static_cast<size_t>(request.plan.dp), num_micro_batches(request)),
                          .num_chunks = static_cast<int32_t>(costs.stages[0].chunks.size()),
                          .costs = pass_costs_of(costs)};
  // A model's embedding and its head.
  if (!costs.tied_bytes.empty()) options.tied_groups = {{0, request.plan.pp - 1}};
  for (const StageCosts& stage : costs.stages) {
    options.num_buckets.push_back(
        request.plan.dp == 1 ? 0 : static_cast<int32_t>(stage.bucket_bytes.size()));
  }
  return build_schedule(request.schedule, options);
}

Result<Prediction> prediction_of_archive(const SimulateRequest& request) {
  TRIREME_TRY(const Archive archive, Archive::open(request.schedule));
  TRIREME_TRY(const Plan plan, choose_plan(archive.graph(), request.schedule, request.plan));
  TRIREME_TRY(verify_plan(plan, archive.graph()));
  return prepare_prediction(archive.graph(), plan,
                            {.sources = request.sources,
                             .optimizer = request.optimizer,
                             .micro_batch = request.samples,
                             .clips_norm = request.clips_norm});
}

// Of a schedule by name or of a file, with costs from a file or of a model by its sizes.
Result<Prediction> prediction_of_schedule(const SimulateRequest& request) {
  Prediction prediction;
  const std::string& path = request.sources.cluster;
  if (!request.model.empty()) {
    TRIREME_TRY(prediction.cluster,
                choose_cluster(path, int64_t{request.plan.pp} * request.plan.dp, prediction.notes));
    TRIREME_TRY(prediction.costs, costs_of_model(request, prediction.cluster));
  } else {
    TRIREME_TRY(prediction.costs, read_text(request.costs, parse_step_costs));
  }
  TRIREME_TRY(prediction.schedule, schedule_of(request, prediction.costs));
  if (request.model.empty()) {
    TRIREME_TRY(prediction.cluster,
                choose_cluster(path, static_cast<int64_t>(prediction.schedule.ranks.size()),
                               prediction.notes));
  }
  return prediction;
}

Result<std::string> run_simulate(const SimulateRequest& request) {
  TRIREME_TRY(
      check_distinct({{"-o", request.output}},
                     {{is_archive(request.schedule) ? "MODEL" : "SCHEDULE", request.schedule},
                      {"--cluster", request.sources.cluster},
                      {"--profile", request.sources.profile},
                      {"--plan", request.plan.plan_path},
                      {"--costs", request.costs}}));
  TRIREME_TRY(check_writable("-o", request.output, WriteKind::kWhole));
  TRIREME_TRY(const Prediction prediction, is_archive(request.schedule)
                                               ? prediction_of_archive(request)
                                               : prediction_of_schedule(request));
  SimOptions options = request.options;
  options.collectives = kCollectives.at(request.collectives);
  options.records_events = !request.output.empty();
  TRIREME_TRY(const Simulation simulation, simulate_step(prediction, options));
  options.records_events = false;
  options.has_free_network = true;
  TRIREME_TRY(const Simulation free, simulate_step(prediction, options));
  if (!request.output.empty()) {
    TRIREME_TRY(write_whole(request.output, to_text(simulation.timeline)));
  }
  if (request.wants_json) {
    return simulation_json(simulation, free.step, prediction.cluster, prediction.notes);
  }
  return simulation_table(simulation, free.step, prediction.cluster, prediction.notes);
}

// Empty: nothing contradicts.
std::string contradiction(const SimulateRequest& request, const CLI::App& app) {
  const auto given = [&app](std::initializer_list<const char*> options) -> const char* {
    for (const char* option : options) {
      if (app.count(option) > 0) return option;
    }
    return nullptr;
  };
  if (is_archive(request.schedule)) {
    if (const char* option = given({"--costs", "--model", "--dtype"})) {
      return fmt::format("{} says what {} says; leave it out", request.schedule, option);
    }
    for (const char* option :
         {"--pp", "--dp", "--micro-batches", "--schedule", "--chunks", "--cut"}) {
      if (request.plan.plan_path.empty() || app.count(option) == 0) continue;
      return fmt::format("--plan {} already says what {} says; leave one of them out",
                         request.plan.plan_path, option);
    }
    return "";
  }
  if (const char* option = given({"--schedule", "--cut", "--plan", "--profile", "--optimizer",
                                  "--momentum", "--clip-norm"})) {
    return fmt::format("{} is for a MODEL.pt2, not for {}", option, in_quotes(request.schedule));
  }
  if (request.costs.empty() == request.model.empty()) {
    return "simulate needs a MODEL.pt2, or a schedule with --costs or --model, and not both";
  }
  if (const char* option = given({"--pp", "--chunks", "--micro-batch", "--dtype"});
      option != nullptr && !request.costs.empty()) {
    return fmt::format("--costs says what {} says; leave it out", option);
  }
  const bool is_named = builder_of(request.schedule) != nullptr;
  if (const char* option = given({"--dp", "--micro-batches"}); option != nullptr && !is_named) {
    return fmt::format("a schedule from a file says what {} says; leave it out", option);
  }
  if (!is_named && !request.model.empty()) {
    return fmt::format("--model needs a schedule by name: {}", builder_names());
  }
  return "";
}

void add_network_options(CLI::App& app, const std::shared_ptr<SimulateRequest>& request) {
  app.add_option("--collectives", request->collectives, "how gradients are summed [ring]")
      ->check(CLI::IsMember({"ring", "tree", "halving-doubling", "hierarchical"}))
      ->group("Simulation");
  app.add_flag_callback(
         "--eager", [request] { request->options.transfers = TransferMode::kEager; },
         "a transfer does not wait for its receive")
      ->group("Simulation");
  app.add_flag_callback(
         "--transfers-first",
         [request] { request->options.sharing = LinkSharing::kTransfersFirst; },
         "links serve transfers between stages before sums of gradients")
      ->group("Simulation");
  app.add_option("--jitter", request->options.jitter,
                 "deviation of the logarithm of each pass's time, 0 to 1 [0]")
      ->check(number())
      ->group("Simulation");
  app.add_option("--seed", request->options.seed, "of the jitter [0]")
      ->check(whole_number(0))
      ->group("Simulation");
}

}  // namespace

RequestMaker add_simulate(CLI::App& app) {
  const auto request = std::make_shared<SimulateRequest>();
  app.add_option("SCHEDULE", request->schedule,
                 fmt::format("a MODEL.pt2, whose plan the options say as of `trireme train`; or a "
                             "schedule: {}, or a file with a schedule's text",
                             builder_names()))
      ->required()
      ->check(not_empty());
  app.add_option("--cluster", request->sources.cluster,
                 "hosts, devices and links as YAML, such as those of examples/clusters [this "
                 "machine, a core for each rank]")
      ->check(not_empty());
  app.add_option("--profile", request->sources.profile,
                 "what `trireme profile` measured of the model [the analytic model]")
      ->check(not_empty());
  app.add_option("--costs", request->costs,
                 "of a schedule: what the passes of each stage take, send and keep, as YAML, such "
                 "as those of examples/costs")
      ->check(not_empty());
  app.add_option("--model", request->model,
                 "instead of --costs, a model by its sizes, which the analytic model costs: "
                 "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257")
      ->check(not_empty());
  app.add_option("--micro-batch", request->samples, "samples of a micro-batch [1]")
      ->check(positive_count());
  app.add_option("--dtype", request->dtype, "of the products of --model [bfloat16]")
      ->check(not_empty());
  add_plan_options(app, request->plan);
  app.add_option("--plan", request->plan.plan_path,
                 "a plan of `trireme plan`, instead of --pp ... --cut")
      ->check(not_empty())
      ->group("Plan");
  add_optimizer_choice(app, request->optimizer);
  app.add_flag("--clip-norm", request->clips_norm, "every update waits for the norm")
      ->group("Optimizer");
  add_network_options(app, request);
  app.add_option("-o,--output", request->output, "write the timeline, for `trireme report`")
      ->check(not_empty());
  app.add_flag("--json", request->wants_json, "print the result as JSON");
  return [&app, request]() -> Result<Request> {
    follow_cut(app, request->plan);
    if (const std::string what = contradiction(*request, app); !what.empty()) return Error{what};
    return Request([request] { return run_simulate(*request); });
  };
}

}  // namespace trireme
