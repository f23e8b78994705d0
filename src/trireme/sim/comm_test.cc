// The model of comm/ beside the simulator: for schedules whose gradients all travel at their end,
// both have the same step.
#include <gtest/gtest.h>

#include "trireme/comm/iteration.h"
#include "trireme/comm/pipeline_workload.h"
#include "trireme/schedule/builders.h"
#include "trireme/sim/simulate.h"

namespace trireme {
namespace {

Cluster hosts_on_a_switch(int32_t num_hosts) {
  Cluster cluster{
      .name = "c",
      .device_kinds =
          {{.name = "d", .flops = {{"float32", 1e12}}, .memory = 1e9, .bandwidth = 1e9}},
      .host_kinds =
          {{.name = "h", .device = "d", .devices = 1, .link = {.bandwidth = 8e9, .latency = 1e-6}}},
      .hosts = {{.name = "h", .kind = "h", .count = num_hosts}}};
  cluster.network.topology = "fat-tree";
  cluster.network.hosts_per_switch = num_hosts;
  cluster.network.speed = {.bandwidth = 1e9, .latency = 10e-6};
  return cluster;
}

struct Step {
  std::string schedule;
  int32_t stages = 1;
  int32_t dp = 1;
  int32_t micro_batches = 1;
};

void compare(const Step& step) {
  SCOPED_TRACE(step.schedule + " S=" + std::to_string(step.stages) +
               " dp=" + std::to_string(step.dp));
  ScheduleOptions options{
      .num_stages = step.stages,
      .num_micro_batches = std::vector<int32_t>(static_cast<size_t>(step.dp), step.micro_batches)};
  options.num_buckets.assign(static_cast<size_t>(step.stages), step.dp > 1 ? 1 : 0);
  const Schedule schedule = build_schedule(step.schedule, options).value();
  StepCosts costs;
  StepLayers layers;
  for (int32_t s = 0; s < step.stages; ++s) {
    StageCosts& stage = costs.stages.emplace_back();
    stage.chunks = {{.forward = 3'000'000,
                     .backward = 6'000'000,
                     .input_gradient = 3'000'000,
                     .weight_gradient = 3'000'000,
                     .activation_bytes = s + 1 < step.stages ? 400'000 : 0,
                     .gradient_bytes = s > 0 ? 400'000 : 0}};
    stage.update = 500'000;
    if (step.dp > 1) stage.bucket_bytes = {5'000'000};
    const std::vector<LayerCosts> of_stage = {
        {.forward = 1, .backward = 2, .gradient_bytes = 2'000'000},
        {.forward = 2, .backward = 1, .gradient_bytes = 3'000'000}};
    layers.push_back({of_stage});
  }
  const Cluster cluster = hosts_on_a_switch(step.stages * step.dp);
  const SimTime simulated =
      simulate(schedule, costs, cluster, {.transfers = TransferMode::kEager}).value().step;
  const Workload workload =
      pipeline_workload(schedule, costs, layers, pipeline_routes(schedule, cluster)).value();
  const StepsResult modelled = run_steps(workload, *find_policy("end").value()).value();
  // The simulator ends a step with its last update. Here a stage goes on with the next step's
  // forward when its own update is over, and scalars and a few roundings are left out.
  EXPECT_LE(modelled.step, simulated + 10);
  if (step.stages == 1) {
    EXPECT_NEAR(static_cast<double>(modelled.step), static_cast<double>(simulated), 10);
  } else {
    EXPECT_GE(static_cast<double>(modelled.step), 0.75 * static_cast<double>(simulated));
  }
}

TEST(CommModel, AgreesWithTheSimulatorOnReplicasThatSumAtTheEnd) {
  for (const int32_t dp : {1, 2, 3, 4, 8}) compare({.schedule = "1f1b", .dp = dp});
  compare({.schedule = "gpipe", .dp = 4, .micro_batches = 5});
}

TEST(CommModel, IsNoSlowerThanTheSimulatorOnPipelinesWhoseStepsMayFollowClosely) {
  for (const char* name : {"1f1b", "gpipe", "zb-h1"}) {
    compare({.schedule = name, .stages = 4, .dp = 1, .micro_batches = 8});
    compare({.schedule = name, .stages = 4, .dp = 2, .micro_batches = 8});
  }
}

}  // namespace
}  // namespace trireme
