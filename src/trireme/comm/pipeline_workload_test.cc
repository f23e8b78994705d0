#include "trireme/comm/pipeline_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/iteration.h"
#include "trireme/schedule/builders.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;

// Devices with a link of 1 byte a nanosecond and 10 ns to their host, hosts with one of half of
// that and 20 ns to a switch.
Cluster cluster_of(int32_t num_hosts, int32_t devices_per_host) {
  Cluster cluster{.name = "c",
                  .device_kinds = {{.name = "d",
                                    .flops = {{"float32", 1e12}},
                                    .memory = 1e9,
                                    .bandwidth = 1e9}},
                  .host_kinds = {{.name = "h",
                                  .device = "d",
                                  .devices = devices_per_host,
                                  .link = {.bandwidth = 1e9, .latency = 10e-9}}},
                  .hosts = {{.name = "h", .kind = "h", .count = num_hosts}}};
  cluster.network.topology = "fat-tree";
  cluster.network.hosts_per_switch = num_hosts;
  cluster.network.speed = {.bandwidth = 0.5e9, .latency = 20e-9};
  EXPECT_TRUE(verify_cluster(cluster).ok()) << verify_cluster(cluster).error().message;
  return cluster;
}

Schedule one_f_one_b(int32_t stages, int32_t dp, int32_t micro_batches) {
  ScheduleOptions options{
      .num_stages = stages,
      .num_micro_batches = std::vector<int32_t>(static_cast<size_t>(dp), micro_batches)};
  options.num_buckets.assign(static_cast<size_t>(stages), dp > 1 ? 1 : 0);
  return build_schedule("1f1b", options).value();
}

// Each stage has two layers.
StepCosts costs_of(int32_t stages) {
  StepCosts costs;
  for (int32_t s = 0; s < stages; ++s) {
    StageCosts& stage = costs.stages.emplace_back();
    stage.chunks = {{.forward = 100,
                     .backward = 200,
                     .activation_bytes = s + 1 < stages ? 40 : 0,
                     .gradient_bytes = s > 0 ? 40 : 0}};
    stage.update = 30;
  }
  return costs;
}
StepLayers layers_of(int32_t stages) {
  const std::vector<LayerCosts> layers = {{.forward = 20, .backward = 50, .gradient_bytes = 100},
                                          {.forward = 30, .backward = 50, .gradient_bytes = 200}};
  return StepLayers(static_cast<size_t>(stages), {layers});
}

TEST(PipelineRoutes, ARingAcrossHostsHasTheRateOfItsSlowestHopAndTheLatencyOfItsLongest) {
  const PipelineRoutes routes = pipeline_routes(one_f_one_b(1, 2, 1), cluster_of(2, 1));
  ASSERT_EQ(routes.sums.size(), 1U);
  EXPECT_EQ(routes.sums[0].members, 2);
  EXPECT_DOUBLE_EQ(routes.sums[0].link.bytes_per_s, 0.5e9);
  EXPECT_NEAR(routes.sums[0].link.latency_s, 60e-9, 1e-15);
  // Out of one device, by its host and the switch, into the other; and back.
  EXPECT_THAT(routes.sums[0].path, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(PipelineRoutes, WhatManyUseAtOnceIsShared) {
  // Two stages a host: both rings cross the hosts' links, each hop of a ring once.
  const PipelineRoutes routes = pipeline_routes(one_f_one_b(2, 2, 2), cluster_of(2, 2));
  EXPECT_DOUBLE_EQ(routes.sums[1].link.bytes_per_s, 0.5e9);
  // The stages of a replica are neighbours: their messages stay inside.
  EXPECT_DOUBLE_EQ(routes.messages.at({0, 1}).link.bytes_per_s, 1e9);
  // A stage a host: the messages of both replicas at once.
  const PipelineRoutes apart = pipeline_routes(one_f_one_b(2, 2, 2), cluster_of(4, 1));
  EXPECT_DOUBLE_EQ(apart.messages.at({1, 0}).link.bytes_per_s, 0.5e9);
  // The way out of stage 0's host is that of its ring and of its messages.
  EXPECT_EQ(apart.messages.at({0, 1}).path.front(), apart.sums[0].path.front());
}

TEST(PipelineRoutes, OneReplicaSumsNothing) {
  const PipelineRoutes routes = pipeline_routes(one_f_one_b(2, 1, 2), cluster_of(2, 1));
  EXPECT_EQ(routes.sums[0].members, 1);
  EXPECT_EQ(routes.messages.size(), 2U);
}

TEST(PipelineWorkload, TakesTheFirstForwardAndTheLastBackwardApartLayerByLayer) {
  const Schedule schedule = one_f_one_b(1, 2, 2);
  const Workload workload = pipeline_workload(schedule, costs_of(1), layers_of(1),
                                              pipeline_routes(schedule, cluster_of(2, 1)))
                                .value();
  // The layers of F0 have 40 and 60, and a third and two thirds of the update before them; B0 and
  // F1 are whole; the layers of B1 are reversed.
  EXPECT_THAT(workload.tasks, ElementsAre(ElementsAre(10, 40, 20, 60, 200, 100, 100, 100)));
  ASSERT_EQ(workload.transfers.size(), 2U);
  EXPECT_EQ(workload.transfers[0],
            (Transfer{.bytes = 100, .producer = {0, 7}, .consumer = {0, 0}, .distance = 1}));
  EXPECT_EQ(workload.transfers[1],
            (Transfer{.bytes = 200, .producer = {0, 6}, .consumer = {0, 2}, .distance = 1}));
}

TEST(PipelineWorkload, HandsActivationsOnAndGradientsBack) {
  const Schedule schedule = one_f_one_b(2, 1, 1);
  const Workload workload = pipeline_workload(schedule, costs_of(2), layers_of(2),
                                              pipeline_routes(schedule, cluster_of(1, 2)))
                                .value();
  std::vector<Transfer> messages;
  for (const Transfer& transfer : workload.transfers) {
    if (is_message(transfer.kind)) messages.push_back(transfer);
  }
  // Of stage 0: U F U F B B; of stage 1: U U F F B B.
  EXPECT_THAT(messages, ElementsAre(Transfer{.kind = TransferKind::kActivation,
                                             .bytes = 40,
                                             .route = 2,
                                             .producer = {0, 3},
                                             .consumer = {1, 2}},
                                    Transfer{.kind = TransferKind::kGradient,
                                             .bytes = 40,
                                             .route = 3,
                                             .producer = {1, 5},
                                             .consumer = {0, 4}}));
}

TEST(PipelineWorkload, EveryScheduleTakesTheTimeOfItsComputingWhereTheNetworkIsFree) {
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (!builder.is_training || builder.name == "text") continue;
    SCOPED_TRACE(std::string(builder.name));
    const int32_t chunks = builder.num_chunks == kAnyChunks ? 2 : builder.num_chunks;
    ScheduleOptions options{
        .num_stages = 2, .num_micro_batches = {4, 4}, .num_buckets = {1, 1}, .num_chunks = chunks};
    const std::vector<Schedule> run = build_run(builder.name, options, 3).value();
    StepCosts costs = costs_of(2);
    StepLayers layers = layers_of(2);
    for (int32_t s = 0; s < 2; ++s) {
      ChunkCosts chunk = costs.stages[static_cast<size_t>(s)].chunks[0];
      chunk.input_gradient = chunk.weight_gradient = 100;
      chunk.recompute = 100;
      chunk.activation_bytes = chunk.gradient_bytes = 40;
      costs.stages[static_cast<size_t>(s)].chunks.assign(static_cast<size_t>(chunks), chunk);
      layers[static_cast<size_t>(s)].assign(static_cast<size_t>(chunks), layers_of(1)[0][0]);
    }
    const Workload workload =
        pipeline_workload(run[1], costs, layers, pipeline_routes(run[1], cluster_of(4, 1))).value();
    const PolicyRow& row = *find_policy("trirace").value();
    const StepsResult free = run_steps(workload, row, {.has_free_network = true}).value();
    EXPECT_EQ(free.step, free.compute);
    // 4 micro-batches of 300 a chunk, and the update; pipelines that drain take longer.
    EXPECT_GE(free.step, 1200 * chunks + 30);
    const StepsResult real = run_steps(workload, row).value();
    EXPECT_GT(real.step, free.step);
    if (builder.name == "2bw") {
      EXPECT_EQ(free.step, 1200 + 30);  // no rank is idle
    }
  }
}

TEST(PipelineWorkload, PassesTakeAsMuchLongerAsTheShareOfTheirDeviceIsSmaller) {
  const ScheduleOptions options{
      .num_stages = 2, .num_micro_batches = {4, 4}, .num_buckets = {1, 1}};
  const Schedule schedule = build_run("2bw", options, 3).value()[1];
  Cluster cluster = cluster_of(4, 1);
  for (DeviceKind& kind : cluster.device_kinds) kind.core_share = 0.5;
  const Workload workload =
      pipeline_workload(schedule, costs_of(2), layers_of(2), pipeline_routes(schedule, cluster))
          .value();
  const PolicyRow& row = *find_policy("trirace").value();
  EXPECT_EQ(run_steps(workload, row, {.has_free_network = true}).value().step, 2 * (1200 + 30));
}

TEST(PipelineWorkload, OfOverlappingStepsTheGradientsHaveAStepMore) {
  const ScheduleOptions options{
      .num_stages = 2, .num_micro_batches = {4, 4}, .num_buckets = {1, 1}};
  const Schedule schedule = build_run("2bw", options, 3).value()[1];
  const Workload workload = pipeline_workload(schedule, costs_of(2), layers_of(2),
                                              pipeline_routes(schedule, cluster_of(4, 1)))
                                .value();
  for (const Transfer& transfer : workload.transfers) {
    if (is_message(transfer.kind)) {
      // Stage 0 is a forward ahead: its activation is needed in the next step.
      const bool is_ahead =
          transfer.kind == TransferKind::kActivation && transfer.producer.task == 9;
      EXPECT_EQ(transfer.distance, is_ahead ? 1 : 0);
      continue;
    }
    // Stage 0 needs it before the last forward of its list, stage 1 at the begin of the one after.
    EXPECT_EQ(transfer.distance, transfer.producer.device == 0 ? 1 : 2);
  }
  // So gradients that take as long as the step cost nothing by `fifo` ...
  const auto run = [&](const char* name) {
    return run_steps(workload, *find_policy(name).value()).value();
  };
  EXPECT_EQ(run("fifo").exposed[0], 0);
  // ... and all of their time at its end.
  EXPECT_GE(run("end").exposed[0], 600);
}

TEST(PipelineWorkload, RefusesLayersOfOtherStagesOrChunks) {
  const Schedule schedule = one_f_one_b(2, 1, 2);
  const PipelineRoutes routes = pipeline_routes(schedule, cluster_of(1, 2));
  EXPECT_EQ(pipeline_workload(schedule, costs_of(2), layers_of(1), routes).error().message,
            "there are layers of 1 stages, and the schedule has 2");
  StepLayers layers = layers_of(2);
  layers[1].push_back(layers[1][0]);
  EXPECT_EQ(pipeline_workload(schedule, costs_of(2), layers, routes).error().message,
            "stage 1 has layers of 2 chunks, and the schedule has 1");
}

}  // namespace
}  // namespace trireme
