#include "trireme/cli/requested_step.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/cli/read_text.h"
#include "trireme/cost/spec_step_costs.h"
#include "trireme/import/archive.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

int64_t ranks_of(const PlanChoice& plan) { return int64_t{stages_of(plan)} * plan.dp; }

int32_t num_micro_batches(const StepRequest& request) {
  return request.plan.micro_batches.value_or(1);
}

struct ModelCosts {
  StepCosts costs;
  StepLayers layers;
};

// By the analytic model, on the devices that the ranks have.
Result<ModelCosts> costs_of_model(const StepRequest& request, const Cluster& cluster) {
  TRIREME_TRY(const ModelSpec spec, parse_model_spec(request.model));
  TRIREME_TRY(verify_model_spec(spec));
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  const size_t num_ranks = std::min(devices.size(), static_cast<size_t>(ranks_of(request.plan)));
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
      .pp = stages_of(request.plan),
      .micro_batch = request.samples,
      .global_batch = int64_t{request.samples} * num_micro_batches(request) * request.plan.dp};
  const auto builders = schedule_builders();
  const ScheduleBuilder& builder =
      *std::ranges::find(builders, std::string_view(request.what), &ScheduleBuilder::name);
  const SpecChunks chunks{.chunks = builder.num_chunks == kAnyChunks
                                        ? request.plan.chunks.value_or(1)
                                        : builder.num_chunks,
                          .placement = builder.placement,
                          .num_weight_versions = builder.num_weight_versions};
  ModelCosts model;
  TRIREME_TRY(model.costs, step_costs_of_spec(spec, layout, chunks, device, {}));
  model.layers = step_layers_of_spec(spec, layout, chunks, device, {});
  return model;
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
Result<Schedule> schedule_of(const StepRequest& request, const StepCosts& costs) {
  if (!is_builder_name(request.what)) {
    Result<Schedule> schedule = read_text(request.what, parse_schedule);
    if (!schedule.ok()) {
      return Error{fmt::format("{}, and no schedule by name: {}", schedule.error().message,
                               builder_names())};
    }
    Status verified = verify_schedule(schedule.value());
    if (verified.ok() && schedule.value().num_weight_versions != 1) {
      verified =
          Error{"a step with versions=2 runs with its neighbours; name the schedule instead"};
    }
    return verified.ok() ? std::move(schedule) : while_doing(request.what, verified.error());
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
                          .costs = pass_costs_of(costs),
                          .extra_warm_ups = request.plan.extra_warm_ups};
  TRIREME_TRY(options.communication, find_communication(request.plan.comm));
  // A model's embedding and its head.
  if (!costs.tied_bytes.empty()) options.tied_groups = {{0, stages_of(request.plan) - 1}};
  for (const StageCosts& stage : costs.stages) {
    options.num_buckets.push_back(
        request.plan.dp == 1 ? 0 : static_cast<int32_t>(stage.bucket_bytes.size()));
    options.num_row_tables.push_back(
        request.plan.dp == 1 ? 0 : static_cast<int32_t>(stage.rows.table_bytes.size()));
  }
  if (std::ranges::max(options.num_row_tables) == 0) options.num_row_tables.clear();
  return build_schedule(request.what, options);
}

Result<Prediction> prediction_of_archive(const StepRequest& request) {
  TRIREME_TRY(const Archive archive, Archive::open(request.what));
  TRIREME_TRY(const Plan plan, choose_plan(archive.graph(), request.what, request.plan));
  TRIREME_TRY(verify_plan(plan, archive.graph()));
  return prepare_prediction(archive.graph(), plan,
                            {.sources = request.sources,
                             .optimizer = request.optimizer,
                             .micro_batch = request.samples,
                             .clips_norm = request.clips_norm,
                             .wants_layers = request.wants_layers});
}

// Of a schedule by name or of a file, with costs from a file or of a model by its sizes.
Result<Prediction> prediction_of_schedule(const StepRequest& request) {
  Prediction prediction;
  const std::string& path = request.sources.cluster;
  if (!request.model.empty()) {
    TRIREME_TRY(prediction.cluster, choose_cluster(path, ranks_of(request.plan), prediction.notes));
    TRIREME_TRY(ModelCosts model, costs_of_model(request, prediction.cluster));
    prediction.costs = std::move(model.costs);
    prediction.layers = std::move(model.layers);
  } else {
    TRIREME_TRY(prediction.costs, read_text(request.costs, parse_step_costs));
    prediction.layers = step_layers_of_buckets(prediction.costs);
  }
  prediction.extra_warm_ups = request.plan.extra_warm_ups;
  TRIREME_TRY(prediction.schedule, schedule_of(request, prediction.costs));
  if (request.model.empty()) {
    TRIREME_TRY(prediction.cluster,
                choose_cluster(path, static_cast<int64_t>(prediction.schedule.ranks.size()),
                               prediction.notes));
  }
  return prediction;
}

}  // namespace

bool is_builder_name(std::string_view name) {
  const auto builders = schedule_builders();
  // `text` is the schedule of a file, which is given by its path.
  return name != "text" &&
         std::ranges::find(builders, name, &ScheduleBuilder::name) != builders.end();
}

std::string builder_names() {
  std::string names;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (!is_builder_name(builder.name)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", builder.name);
  }
  return names;
}

bool is_archive(const std::string& name) { return name.ends_with(".pt2"); }

std::vector<NamedFile> step_inputs(const StepRequest& request) {
  return {{is_archive(request.what) ? "MODEL" : "SCHEDULE", request.what},
          {"--cluster", request.sources.cluster},
          {"--profile", request.sources.profile},
          {"--plan", request.plan.plan_path},
          {"--costs", request.costs}};
}

Result<Prediction> prediction_of(const StepRequest& request) {
  return is_archive(request.what) ? prediction_of_archive(request)
                                  : prediction_of_schedule(request);
}

}  // namespace trireme
