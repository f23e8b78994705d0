#include "trireme/comm/policy_page.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trireme/comm/iteration.h"
#include "trireme/comm/known_models.h"
#include "trireme/comm/pipeline_workload.h"
#include "trireme/comm/tuner.h"
#include "trireme/cost/spec_step_costs.h"
#include "trireme/schedule/builders.h"

namespace trireme {
namespace {

constexpr std::string_view kHead = R"(# Communication policies

Written by `trireme policies --page`, all of it; a test compares it. No figure here is measured: steps are run in the
model of `src/trireme/comm/iteration.h`, which has links, start-ups and overheads, and no jitter.

A policy sees what has to travel and when it is ready and needed, and says in what pieces it goes, in what order, and how
much of it at once. It is one file in `src/trireme/comm/policies/` and one row of `policies.cc`. Its file says where it
follows a paper, where the authors' code, and where neither is known. Policies that were published for parameter servers
sum by all-reduce here. "Forward waits" is what the next forward waits for, as published: each layer for its own
gradient, the first layer for all gradients, or everything for all of them.

)";

constexpr std::string_view kModelsHead = R"(
## Models on replicas

How many times as fast a step is as with `end`. Eight replicas sum by ring; a step computes for 100 ms, a hop has a
latency of 20 us and a unit an overhead of 20 us; the columns are how long all gradients are on the link, by ring and
without start-ups, as a share of the time of computing. "Bound" is a step that takes as long as the longer of the two.
`bytescheduler, tuned` is what its tuner finds in 15 steps.

What can be won is most where both take as long, and little where either is short: a step by `end` takes as long as both
together, so no order makes it more than twice as fast. More than that is won only where less travels (rows in place of
tables) or less starts. Most of it comes from overlap alone (`wfbp`, `fifo`); priorities and pieces matter in between.

)";

constexpr std::string_view kPipelineHead = R"(
## A pipeline on replicas

A GPT of 24 layers of width 1024, in four stages on four replicas, eight micro-batches of four samples each, on devices
of 312 TFLOP/s. Every rank has a host of its own; the columns are the bandwidth of a host's link in GB/s, each direction.
How many times as fast a step is as with `end`, and in brackets the shares of the step in which a rank waits for sums of
gradients and for messages between stages, in per cent, the most of any rank.

)";

const std::vector<double> kRatios = {0.1, 0.25, 0.5, 1, 2, 4};
const std::vector<double> kGigabytes = {25, 12.5, 6.25, 3.125, 1.5625};

std::string_view to_text(ForwardWaits waits) {
  switch (waits) {
    case ForwardWaits::kForItsLayer:
      return "each layer for its own";
    case ForwardWaits::kForAll:
      return "for all";
    case ForwardWaits::kAtTheEnd:
      return "everything for all";
  }
  return "";
}

std::string megabytes(int64_t bytes) {
  return bytes == 0 ? "-" : fmt::format("{:g}", 1e-6 * static_cast<double>(bytes));
}

std::string rows_of_table() {
  std::string text =
      "| policy | what it does | forward waits | bucket, MB | piece, MB | credit, MB | after |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const PolicyRow& row : policy_rows()) {
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", row.name, row.summary,
                        to_text(row.waits), megabytes(row.defaults.bucket_bytes),
                        megabytes(row.defaults.chunk_bytes), megabytes(row.defaults.credit_bytes),
                        row.source);
  }
  return text;
}

std::string head_of_columns(std::string_view what, const std::vector<double>& columns) {
  std::string text = fmt::format("| {} |", what);
  for (const double column : columns) text += fmt::format(" {:g} |", column);
  text += "\n|---|";
  for (size_t i = 0; i < columns.size(); ++i) text += "---|";
  return text + "\n";
}

double ratio(SimTime a, SimTime b) { return static_cast<double>(a) / static_cast<double>(b); }

// Steps of a model at each ratio.
class ModelSweep {
 public:
  explicit ModelSweep(const KnownModel& model) : layers_(layer_costs(model.layers(), kCompute)) {
    int64_t bytes = 0;
    for (const LayerCosts& layer : layers_) bytes += layer.gradient_bytes;
    for (const double share : kRatios) {
      const double link_s = share * to_seconds(kCompute);
      const double bytes_per_s =
          2 * (kMembers - 1.0) / kMembers * static_cast<double>(bytes) / link_s;
      const Route route{.link = {.latency_s = 20e-6, .bytes_per_s = bytes_per_s},
                        .members = kMembers,
                        .path = {0, 1},
                        .overhead_s = 20e-6};
      workloads_.push_back(chain_workload(layers_, route));
      bounds_.push_back(std::max(kCompute, to_sim_time(link_s)));
    }
  }

  Result<std::string> rows() {
    std::string text = head_of_columns("policy", kRatios);
    for (const PolicyRow& row : policy_rows()) {
      const auto step_of = [&](const Workload& workload) -> Result<SimTime> {
        TRIREME_TRY(const StepsResult result, run_steps(workload, row));
        return result.step;
      };
      TRIREME_TRY(text, with_row(text, row.name, step_of));
      if (row.name != "bytescheduler") continue;
      TRIREME_TRY(text, with_row(text, "bytescheduler, tuned", tuned_step));
    }
    text += "| *bound* |";
    for (size_t i = 0; i < kRatios.size(); ++i) {
      text += fmt::format(" *{:.2f}* |", ratio(ends_[i], bounds_[i]));
    }
    return text + "\n";
  }

 private:
  static constexpr SimTime kCompute = 100'000'000;
  static constexpr int32_t kMembers = 8;

  static Result<SimTime> tuned_step(const Workload& workload) {
    TRIREME_TRY(const PolicyRow* row, find_policy("bytescheduler"));
    TRIREME_TRY(verify_workload(workload));
    return tune({},
                [&](const PolicyOptions& options) {
                  return run_steps(workload, *row, {.policy = options}).value().step;
                })
        .step;
  }

  Result<std::string> with_row(std::string text, std::string_view name,
                               const std::function<Result<SimTime>(const Workload&)>& step_of) {
    text += fmt::format("| {} |", name);
    for (size_t i = 0; i < kRatios.size(); ++i) {
      TRIREME_TRY(const SimTime step, step_of(workloads_[i]));
      if (ends_.size() == i) ends_.push_back(step);  // `end` is the first row
      text += fmt::format(" {:.2f} |", ratio(ends_[i], step));
    }
    return text + "\n";
  }

  std::vector<LayerCosts> layers_;
  std::vector<Workload> workloads_;  // by ratio
  std::vector<SimTime> bounds_;
  std::vector<SimTime> ends_;  // steps of `end`
};

Cluster hosts_of_one_device(int32_t num_hosts, double bytes_per_s) {
  Cluster cluster{.name = "hosts",
                  .device_kinds = {{.name = "device",
                                    .flops = {{"bfloat16", 312e12}},
                                    .memory = 80e9,
                                    .bandwidth = 2e12}},
                  .host_kinds = {{.name = "host",
                                  .device = "device",
                                  .devices = 1,
                                  .link = {.bandwidth = 300e9, .latency = 2e-6}}},
                  .hosts = {{.name = "host", .kind = "host", .count = num_hosts}}};
  cluster.network.topology = "fat-tree";
  cluster.network.hosts_per_switch = num_hosts;
  cluster.network.speed = {.bandwidth = bytes_per_s, .latency = 5e-6};
  return cluster;
}

Result<std::vector<Workload>> pipeline_workloads(std::string_view schedule_name) {
  constexpr int32_t kStages = 4;
  constexpr int32_t kReplicas = 4;
  constexpr int32_t kMicroBatches = 8;
  const ModelSpec spec{.layers = 24, .hidden = 1024, .heads = 16, .seq = 1024, .vocab = 50257};
  const TrainingLayout layout{.dp = kReplicas,
                              .pp = kStages,
                              .micro_batch = 4,
                              .global_batch = 4 * kMicroBatches * kReplicas};
  const DeviceModel device{.flops_per_s = 312e12,
                           .bytes_per_s = 2e12,
                           .tile = 1,
                           .matmul_efficiency = 0.6,
                           .memory_efficiency = 0.8,
                           .launch_s = 5e-6};
  TRIREME_TRY(const StepCosts costs, step_costs_of_spec(spec, layout, {}, device, {}));
  const StepLayers layers = step_layers_of_spec(spec, layout, {}, device, {});
  ScheduleOptions options{.num_stages = kStages,
                          .num_micro_batches = std::vector<int32_t>(kReplicas, kMicroBatches),
                          .num_buckets = std::vector<int32_t>(kStages, 1)};
  TRIREME_TRY(const std::vector<Schedule> run, build_run(schedule_name, options, 3));
  std::vector<Workload> workloads;
  for (const double gigabytes : kGigabytes) {
    PipelineRoutes routes =
        pipeline_routes(run[1], hosts_of_one_device(kStages * kReplicas, 1e9 * gigabytes));
    for (Route& route : routes.sums) route.overhead_s = 20e-6;
    TRIREME_TRY(Workload workload, pipeline_workload(run[1], costs, layers, routes));
    workloads.push_back(std::move(workload));
  }
  return workloads;
}

Result<std::string> pipeline_rows(std::string_view schedule_name) {
  TRIREME_TRY(const std::vector<Workload> workloads, pipeline_workloads(schedule_name));
  std::string text = head_of_columns("policy", kGigabytes);
  std::vector<SimTime> ends;
  for (const PolicyRow& row : policy_rows()) {
    text += fmt::format("| {} |", row.name);
    for (size_t i = 0; i < workloads.size(); ++i) {
      TRIREME_TRY(const StepsResult result, run_steps(workloads[i], row));
      if (ends.size() == i) ends.push_back(result.step);
      const auto exposed = [&](TransferKind kind) {
        return 100 * ratio(result.exposed[static_cast<size_t>(kind)], result.step);
      };
      text += fmt::format(" {:.2f} ({:.0f}, {:.0f}) |", ratio(ends[i], result.step),
                          exposed(TransferKind::kAllReduce),
                          exposed(TransferKind::kActivation) + exposed(TransferKind::kGradient));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string policy_table() {
  size_t width = 0;
  for (const PolicyRow& row : policy_rows()) width = std::max(width, row.name.size());
  std::string text;
  for (const PolicyRow& row : policy_rows()) {
    text += fmt::format("{:{}}  {} ({})\n", row.name, width, row.summary, row.source);
  }
  return text;
}

Result<std::string> policy_page() {
  std::string text(kHead);
  text += rows_of_table();
  text += kModelsHead;
  for (const KnownModel& model : known_models()) {
    TRIREME_TRY(const std::string rows, ModelSweep(model).rows());
    text += fmt::format("{}### {}: {}\n\n{}", &model == known_models().data() ? "" : "\n",
                        model.name, model.summary, rows);
  }
  text += kPipelineHead;
  for (const std::string_view schedule : {"1f1b", "2bw"}) {
    TRIREME_TRY(const std::string rows, pipeline_rows(schedule));
    text += fmt::format("{}### {}\n\n{}", schedule == "1f1b" ? "" : "\n", schedule, rows);
  }
  return text;
}

}  // namespace trireme
