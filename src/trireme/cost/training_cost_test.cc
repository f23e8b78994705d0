#include "trireme/cost/training_cost.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr ModelSpec kSpec = {.layers = 8, .hidden = 64, .heads = 8, .seq = 32, .vocab = 1024};
// Memory and launches cost nothing; a second is 1e9 flops, with tiles of one number.
constexpr DeviceModel kDevice = {
    .flops_per_s = 1e9, .bytes_per_s = 1e30, .processors = 1, .tile = 1};
constexpr TrainingHosts kHosts = {.devices_per_host = 4,
                                  .inside = {.latency_s = 0, .bytes_per_s = 1e6},
                                  .between = {.latency_s = 0, .bytes_per_s = 1e5}};

TEST(TrainingCost, OneDeviceTakesTheFlopsOfTheStep) {
  const TrainingStep step =
      training_step(kSpec, {.micro_batch = 2, .global_batch = 6}, kDevice, kHosts);
  // As in transformer_work_test.cc, of 6 samples.
  const double flops = 96.0 * 6 * 32 * 8 * 64 * 64 * (1 + 32.0 / (6 * 64) + 1024.0 / (16 * 8 * 64));
  EXPECT_NEAR(step.seconds, flops / 1e9, 1e-9 * step.seconds);
}

TEST(TrainingCost, APipelineTakesItsBubbleAndItsTransfers) {
  const TrainingLayout layout = {.pp = 4, .micro_batch = 1, .global_batch = 5};
  const TrainingStep step = training_step(kSpec, layout, kDevice, kHosts);
  const double transfer = 32 * 64 * 2 / 1e6;
  EXPECT_DOUBLE_EQ(step.pipeline_s, 8 * step.layer_s + step.embedding_s + step.head_s +
                                        6 * transfer +
                                        4 * (2 * step.layer_s + step.head_s + 2 * transfer));
}

TEST(TrainingCost, GradientsAreSummedWithinAHostOrThroughTheSharedNetwork) {
  const double parameters = (8.0 * 12 * 64 + 1024) * 64;
  EXPECT_DOUBLE_EQ(training_step(kSpec, {.dp = 4, .global_batch = 4}, kDevice, kHosts).reduction_s,
                   2 * 0.75 * 2 * parameters / 1e6);
  // Two rings share the network of a host.
  EXPECT_DOUBLE_EQ(
      training_step(kSpec, {.dp = 4, .tp = 2, .global_batch = 4}, kDevice, kHosts).reduction_s,
      2 * 0.75 * 2 * (parameters / 2) / 0.5e5);
}

TEST(TrainingCost, DevicesThatShareALayerSumItsActivationsSixTimes) {
  const TrainingStep one = training_step(kSpec, {}, kDevice, kHosts);
  const TrainingStep two = training_step(kSpec, {.tp = 2}, kDevice, kHosts);
  EXPECT_DOUBLE_EQ(two.layer_s, one.layer_s / 2 + 6 * 2 * 0.5 * 32 * 64 * 2 / 1e6);
}

TEST(TrainingCost, RefusesLayoutsThatDoNotDivide) {
  const auto refusal = [](const TrainingLayout& layout) {
    const Status status = verify_layout(kSpec, layout);
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.pp = 3}), "8 layers do not divide into pp=3");
  EXPECT_EQ(refusal({.tp = 16}), "8 heads do not divide into tp=16");
  EXPECT_EQ(refusal({.dp = 2, .micro_batch = 2, .global_batch = 6}),
            "global_batch=6 is no multiple of micro_batch=2 times dp=2");
  EXPECT_EQ(refusal({.dp = 0}), "dp is 0, not 1 to 1048576");
}

}  // namespace
}  // namespace trireme
