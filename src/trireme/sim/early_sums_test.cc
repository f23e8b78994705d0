// Sums of gradients that leave within a backward.
#include <gtest/gtest.h>

#include "trireme/sim/simulated_steps.h"

namespace trireme {
namespace {

// Two replicas of a backward of 2 s, whose buckets of 1000 and 3000 bytes, a second and three on
// the wire of 1000 bytes a second, are final after 0.5 s and 2 s.
TEST(Simulate, EarlySumsTravelWhileTheBackwardRuns) {
  StepCosts costs = costs_of(1, 0);
  costs.stages[0].bucket_bytes = {1000, 3000};
  costs.stages[0].chunks[0].bucket_final = {kSecond / 2, 2 * kSecond};
  const auto step = [&](CommunicationRules rules, std::vector<int32_t> micro_batches) {
    const Schedule schedule = build_schedule("1f1b", {.num_stages = 1,
                                                      .num_micro_batches = std::move(micro_batches),
                                                      .num_buckets = {2},
                                                      .communication = rules})
                                  .value();
    return run(schedule, costs, star(2, {.bandwidth = 1000})).step;
  };
  EXPECT_EQ(step({}, {2, 2}), (2 * 3 + 1 + 3) * kSecond);
  EXPECT_EQ(step({.sums_early = true}, {2, 2}), (2 * 3 + 3) * kSecond);
  // The other replica ends its last backward 3 s earlier; one without any joins at once.
  EXPECT_EQ(step({.sums_early = true}, {2, 1}), (2 * 3 + 3) * kSecond);
  EXPECT_EQ(step({.sums_early = true}, {2, 0}), (2 * 3 + 3) * kSecond);
  // In the order of the list: the second bucket waits for the first.
  costs.stages[0].chunks[0].bucket_final = {2 * kSecond, kSecond / 2};
  EXPECT_EQ(step({.sums_early = true}, {2, 2}), (2 * 3 + 1 + 3) * kSecond);
  // What is not known to be final leaves after the pass.
  costs.stages[0].chunks[0].bucket_final = {kSecond / 2};
  EXPECT_EQ(step({.sums_early = true}, {2, 2}), (2 * 3 + 3) * kSecond);
  costs.stages[0].chunks[0].bucket_final = {};
  EXPECT_EQ(step({.sums_early = true}, {2, 2}), (2 * 3 + 1 + 3) * kSecond);
}

// The update waits for the losses, which travel for 5 s, from the last forward on.
TEST(Simulate, EarlySumsExchangeTheLossesAfterTheLastForward) {
  StepCosts costs = costs_of(1, 0);
  costs.scalar_bytes = 5000;
  const auto step = [&](CommunicationRules rules) {
    const Schedule schedule = build_schedule("gpipe", {.num_stages = 1,
                                                       .num_micro_batches = {2, 2},
                                                       .num_buckets = {1},
                                                       .communication = rules})
                                  .value();
    return run(schedule, costs, star(2, {.bandwidth = 1000})).step;
  };
  EXPECT_EQ(step({}), (2 * 3 + 5) * kSecond);
  EXPECT_EQ(step({.sums_early = true}), (2 + 5) * kSecond);
}

// Chunk 1 of a V alone adds to bucket 0, which is final when its last backward is half over.
TEST(Simulate, ABucketIsFinalInTheLastBackwardOfTheChunksThatAddToIt) {
  StepCosts costs = costs_of(1, 0);
  StageCosts& stage = costs.stages[0];
  stage.chunks.push_back(stage.chunks[0]);
  stage.chunks[0].bucket_final = {0, kSecond};
  stage.chunks[1].bucket_final = {kSecond, 2 * kSecond};
  stage.bucket_bytes = {3000, 1000};
  const Schedule schedule = build_schedule("interleaved", {.num_stages = 1,
                                                           .num_micro_batches = {1, 1},
                                                           .num_buckets = {2},
                                                           .num_chunks = 2,
                                                           .communication = {.sums_early = true}})
                                .value();
  // F0 F0.1 B0.1 B0: bucket 0 travels from 3 s to 6 s, bucket 1 is final at 4 + 1 s.
  EXPECT_EQ(run(schedule, costs, star(2, {.bandwidth = 1000})).step, 7 * kSecond);
}

}  // namespace
}  // namespace trireme
