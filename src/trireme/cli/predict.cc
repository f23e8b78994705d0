#include "trireme/cli/predict.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/cli/read_text.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cluster/this_host.h"
#include "trireme/cost/step_costs_of.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"
#include "trireme/schedule/unroll.h"

namespace trireme {
namespace {

Result<const DeviceKind*> device_of_ranks(const Cluster& cluster, int64_t num_ranks) {
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  for (size_t r = 1; r < std::min(devices.size(), static_cast<size_t>(num_ranks)); ++r) {
    if (devices[r] == devices[0]) continue;
    return Error{
        fmt::format("rank {} has a device of kind {} and rank 0 one of kind {}; a model "
                    "is costed for devices of one kind, give --costs",
                    r, in_quotes(devices[r]->name), in_quotes(devices[0]->name))};
  }
  return devices[0];
}

}  // namespace

Result<Cluster> choose_cluster(const std::string& path, int64_t num_ranks,
                               std::vector<std::string>& notes) {
  if (!path.empty()) {
    TRIREME_TRY(Cluster cluster, read_text(path, parse_cluster));
    const Status verified = verify_cluster(cluster);
    return verified.ok() ? Result(std::move(cluster)) : while_doing(path, verified.error());
  }
  if (num_ranks > kMaxClusterDevices) {
    return Error{
        fmt::format("{} ranks are more than a machine has devices; give --cluster", num_ranks)};
  }
  ThisHost host = this_host(static_cast<int32_t>(num_ranks));
  const LinkSpeed& link = host.cluster.host_kinds[0].link;
  notes.push_back(fmt::format(
      "cluster: this host ({}), a core for each rank{}; {:g} us and {:g} GB/s between ranks are "
      "assumed, trireme probe measures them for --cluster",
      one_line(host.processor, 60),
      num_ranks > host.num_cores ? fmt::format(", though it has {}", host.num_cores) : "",
      2e6 * link.latency, 1e-9 * link.bandwidth));
  return std::move(host.cluster);
}

Result<std::vector<Schedule>> run_of(const Prediction& prediction, int32_t num_steps) {
  const Schedule& step = prediction.schedule;
  return build_run(step.builder,
                   {.num_stages = step.num_stages,
                    .num_micro_batches = step.num_micro_batches,
                    .tied_groups = step.tied_groups,
                    .num_buckets = step.num_buckets,
                    .num_tied_buckets = step.num_tied_buckets,
                    .num_row_tables = step.num_row_tables,
                    .clips_norm = step.clips_norm,
                    .communication = step.communication,
                    .extra_warm_ups = prediction.extra_warm_ups},
                   num_steps);
}

namespace {

// Steps that overlap: what one between others takes is what a run takes longer for it.
Result<Simulation> simulate_overlapping(const Prediction& prediction, const SimOptions& options) {
  constexpr int32_t kSteps = 5;
  const auto simulate_run = [&](int32_t num_steps) -> Result<Simulation> {
    TRIREME_TRY(const std::vector<Schedule> steps, run_of(prediction, num_steps));
    return simulate(unroll(steps), prediction.costs, prediction.cluster, options);
  };
  TRIREME_TRY(Simulation run, simulate_run(kSteps));
  TRIREME_TRY(const Simulation shorter, simulate_run(kSteps - 1));
  run.step -= shorter.step;
  for (size_t rank = 0; rank < run.compute.size(); ++rank) {
    run.compute[rank] -= shorter.compute[rank];
  }
  return run;
}

}  // namespace

Result<Schedule> middle_step(const Prediction& prediction) {
  if (prediction.schedule.num_weight_versions == 1) return prediction.schedule;
  Prediction plain = prediction;
  TRIREME_TRY(plain.schedule.communication, find_communication(kDefaultCommunication));
  TRIREME_TRY(std::vector<Schedule> run, run_of(plain, 3));
  return std::move(run[1]);
}

Result<Simulation> simulate_step(const Prediction& prediction, const SimOptions& options) {
  const Schedule& step = prediction.schedule;
  if (step.num_weight_versions == 2) return simulate_overlapping(prediction, options);
  return simulate(step, prediction.costs, prediction.cluster, options);
}

namespace {

bool fits_memory(const Simulation& simulation, const Cluster& cluster) {
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  const std::vector<int64_t>& peaks = simulation.timeline.peak_bytes;
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    const double memory = devices[rank]->memory;
    if (memory > 0 && static_cast<double>(peaks[rank]) > memory) return false;
  }
  return true;
}

}  // namespace

Status set_extra_warm_ups(Prediction& prediction, std::vector<int32_t> extra) {
  prediction.extra_warm_ups = std::move(extra);
  TRIREME_TRY(std::vector<Schedule> run, run_of(prediction, 1));
  prediction.schedule = std::move(run.front());
  return Status();
}

Result<std::vector<int32_t>> find_extra_warm_ups(Prediction prediction, const SimOptions& options) {
  constexpr double kWorth = 0.99;
  const Schedule step = prediction.schedule;
  const int32_t fewest = std::ranges::min(step.num_micro_batches);
  std::vector<int32_t> extra(static_cast<size_t>(step.num_stages) - 1, 0);
  const auto simulate_with = [&]() -> Result<Simulation> {
    TRIREME_TRY(set_extra_warm_ups(prediction, extra));
    return simulate_step(prediction, options);
  };
  TRIREME_TRY(Simulation best, simulate_with());
  int32_t most_ahead = step.num_stages - 1;
  // A slow hop loses most where its neighbours are slow, too; one more at any of them helps all.
  bool has_found = true;
  while (has_found) {
    has_found = false;
    for (int32_t& hop : extra) {
      if (most_ahead == fewest) break;
      ++hop;
      TRIREME_TRY(Simulation simulation, simulate_with());
      const bool is_worth_it =
          static_cast<double>(simulation.step) < kWorth * static_cast<double>(best.step) &&
          fits_memory(simulation, prediction.cluster);
      if (!is_worth_it) {
        --hop;
        continue;
      }
      ++most_ahead;
      has_found = true;
      best = std::move(simulation);
    }
  }
  return extra;
}

Result<Prediction> prepare_prediction(const Graph& graph, const Plan& given,
                                      const PredictionRequest& request) {
  Plan plan = given;
  TRIREME_TRY(plan.sparse, sparse_choice(given, request.optimizer));
  const int64_t num_ranks = int64_t{plan.pp} * plan.dp;
  Prediction prediction;
  TRIREME_TRY(prediction.cluster,
              choose_cluster(request.sources.cluster, num_ranks, prediction.notes));
  TRIREME_TRY(const DeviceKind* device, device_of_ranks(prediction.cluster, num_ranks));
  TRIREME_TRY(AnalyticOptions options,
              analytic_options(graph, *device, num_optimizer_states(request.optimizer)));
  if (request.sources.cluster.empty()) {  // cores
    options.device.flops_per_s *= request.threads;
    options.device.bytes_per_s *= request.threads;
  }
  std::optional<Profile> profile;
  if (request.sources.profile.empty()) {
    prediction.notes.insert(prediction.notes.begin(),
                            "passes: by the analytic model; trireme profile measures them");
  } else {
    TRIREME_TRY(profile, read_text(request.sources.profile, parse_profile));
    prediction.notes.insert(prediction.notes.begin(),
                            fmt::format("passes: measured, {}", one_line(profile->device, 100)));
  }
  Result<StepCosts> costs = step_costs_of(graph, plan, request.micro_batch,
                                          profile.has_value() ? &*profile : nullptr, options);
  if (!costs.ok() && profile.has_value()) {
    return while_doing(request.sources.profile, costs.error());
  }
  TRIREME_TRY(prediction.costs, std::move(costs));
  if (request.wants_layers) {
    TRIREME_TRY(prediction.layers,
                step_layers_of(graph, plan, request.micro_batch,
                               profile.has_value() ? &*profile : nullptr, options));
  }
  TRIREME_TRY(const Partition partition, partition_by_plan(plan, graph));
  const int64_t step_samples = request.micro_batch * plan.micro_batches * plan.dp;
  TRIREME_TRY(
      ScheduleOptions schedule,
      schedule_options(graph, plan, partition, bucket_options(graph, plan, partition, step_samples),
                       /*is_training=*/true));
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    prediction.costs.stages[s].static_bytes =
        static_bytes(graph, partition.stages[s], num_optimizer_states(request.optimizer),
                     num_weight_versions(plan));
  }
  schedule.num_micro_batches =
      std::vector<int32_t>(static_cast<size_t>(plan.dp), plan.micro_batches);
  schedule.clips_norm = request.clips_norm;
  prediction.extra_warm_ups = plan.extra_warm_ups;
  TRIREME_TRY(prediction.schedule, build_schedule(plan.schedule, schedule));
  return prediction;
}

Result<StepPrediction> predict_step(const Graph& graph, const Plan& plan,
                                    const PredictionRequest& request) {
  TRIREME_TRY(Prediction prediction, prepare_prediction(graph, plan, request));
  TRIREME_TRY(Simulation simulation,
              simulate_step(prediction, {.sharing = request.sharing, .records_events = false}));
  return StepPrediction{.step_s = static_cast<double>(simulation.step) * 1e-9,
                        .peak_bytes = std::move(simulation.timeline.peak_bytes),
                        .notes = std::move(prediction.notes)};
}

}  // namespace trireme
