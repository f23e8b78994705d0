#include "trireme/cost/spec_step_costs.h"

#include <gtest/gtest.h>

#include "trireme/cost/transformer_work.h"

namespace trireme {
namespace {

constexpr ModelSpec kSpec = {.layers = 8, .hidden = 1024, .heads = 16, .seq = 512, .vocab = 1000};
const DeviceModel kDevice = {
    .flops_per_s = 1e14, .bytes_per_s = 1e12, .processors = 1, .tile = 1, .launch_s = 1e-5};
const TrainingHosts kHosts = {.devices_per_host = 8,
                              .inside = {.latency_s = 1e-5, .bytes_per_s = 1e11},
                              .between = {.latency_s = 1e-5, .bytes_per_s = 1e10}};

TEST(StepCostsOfSpec, AddUpToTheFormulaOfAStep) {
  const TrainingLayout layout = {.dp = 1, .pp = 2, .tp = 2, .micro_batch = 2, .global_batch = 8};
  const StepCosts costs = step_costs_of_spec(kSpec, layout, {}, kDevice, kHosts).value();
  const TrainingStep step = training_step(kSpec, layout, kDevice, kHosts);
  double seconds = 0;
  for (const StageCosts& stage : costs.stages) {
    const ChunkCosts& chunk = stage.chunks[0];
    seconds += to_seconds(chunk.forward + chunk.recompute + chunk.backward);
    EXPECT_GE(chunk.input_gradient + chunk.weight_gradient, chunk.backward);
  }
  // The formula counts the recomputation of layers only.
  const double twice = step.embedding_s / 2 + step.head_s / 3;
  EXPECT_NEAR(seconds, 8 * step.layer_s + step.embedding_s + step.head_s + twice, 1e-7);
}

TEST(StepCostsOfSpec, AddUpFromTheirLayers) {
  for (const Placement placement : {Placement::kLooped, Placement::kV}) {
    for (const int64_t pp : {1, 2}) {
      const TrainingLayout layout = {.dp = 2, .pp = pp, .micro_batch = 2, .global_batch = 16};
      const SpecChunks chunks = {.chunks = 2, .placement = placement};
      const StepCosts costs = step_costs_of_spec(kSpec, layout, chunks, kDevice, kHosts).value();
      const StepLayers layers = step_layers_of_spec(kSpec, layout, chunks, kDevice, kHosts);
      for (size_t s = 0; s < static_cast<size_t>(pp); ++s) {
        int64_t bytes = 0;
        for (size_t c = 0; c < 2; ++c) {
          ASSERT_EQ(layers[s][c].size(), static_cast<size_t>(4 / pp));
          SimTime forward = 0;
          SimTime backward = 0;
          for (const LayerCosts& layer : layers[s][c]) {
            forward += layer.forward;
            backward += layer.backward;
            bytes += layer.gradient_bytes;
          }
          // A time is rounded once for each layer, and for the ends.
          EXPECT_NEAR(forward, costs.stages[s].chunks[c].forward, 4);
          EXPECT_NEAR(backward, costs.stages[s].chunks[c].backward, 4);
        }
        EXPECT_EQ(bytes, costs.stages[s].bucket_bytes[0]);
      }
    }
  }
}

TEST(StepCostsOfSpec, DivideABackwardByWhatItsProductsMake) {
  const TrainingLayout layout = {.pp = 2, .micro_batch = 2, .global_batch = 8};
  DeviceModel device = kDevice;
  device.bytes_per_s = 1e20;  // products only
  device.launch_s = 0;
  const StepCosts costs = step_costs_of_spec(kSpec, layout, {.chunks = 2}, device, kHosts).value();
  const ChunkCosts& chunk = costs.stages[1].chunks[0];  // two layers and neither end
  const double tokens = 2 * 512;
  const double weights = 2 * tokens * 12 * 1024 * 1024;  // flops of each layer's four products
  const double attention = 2 * 4 * tokens * 512 * 1024;  // scores and context, two factors each
  EXPECT_EQ(chunk.weight_gradient, to_sim_time(2 * weights / 1e14));
  EXPECT_EQ(chunk.input_gradient, to_sim_time(2 * (weights + attention) / 1e14));
  EXPECT_EQ(chunk.forward, to_sim_time(2 * (weights + attention / 2) / 1e14));
}

TEST(StepCostsOfSpec, CountBytesAsThePapersDo) {
  const TrainingLayout layout = {.dp = 4, .pp = 2, .tp = 2, .micro_batch = 3, .global_batch = 24};
  const StepCosts costs = step_costs_of_spec(kSpec, layout, {}, kDevice, kHosts).value();
  const ChunkCosts& first = costs.stages[0].chunks[0];
  const ChunkCosts& last = costs.stages[1].chunks[0];
  const int64_t sbh = 512 * 3 * 1024;
  EXPECT_EQ(first.activation_bytes, 2 * sbh);
  EXPECT_EQ(first.gradient_bytes, 0);
  EXPECT_EQ(last.activation_bytes, 0);
  EXPECT_EQ(last.gradient_bytes, 2 * sbh);
  // 4 layers, t = 2: 10 + 24/2 + 5 * 16 * 512 / (1024 * 2).
  EXPECT_EQ(first.kept_bytes, 4 * sbh * (10 + 12 + 20));
  const int64_t logits = 4 * 512 * 3 * (1024 / 2);  // the vocabulary is filled up to 256 a device
  EXPECT_EQ(last.kept_bytes, first.kept_bytes + 4 * sbh + logits);
  const int64_t parameters = 4 * 12 * 1024 * 1024 / 2 + 512 * 1024;
  EXPECT_EQ(costs.stages[0].static_bytes, 16 * parameters);
  // Another version of the weights and of their gradients.
  const StepCosts two =
      step_costs_of_spec(kSpec, layout, {.num_weight_versions = 2}, kDevice, kHosts).value();
  EXPECT_EQ(two.stages[0].static_bytes, (16 + 2 + 2) * parameters);
  EXPECT_EQ(costs.stages[0].bucket_bytes, std::vector<int64_t>{2 * parameters});
  EXPECT_EQ(costs.tied_bytes, std::vector<int64_t>{2 * 512 * 1024});
  EXPECT_EQ(costs.scalar_bytes, 16 * 8);  // micro-batches of all replicas
}

TEST(StepCostsOfSpec, InAVOneStageHasBothEndsOfTheModel) {
  const TrainingLayout layout = {.pp = 2, .micro_batch = 1, .global_batch = 4};
  const StepCosts costs =
      step_costs_of_spec(kSpec, layout, {.chunks = 2, .placement = Placement::kV}, kDevice, kHosts)
          .value();
  EXPECT_EQ(costs.stages[0].chunks[0].gradient_bytes, 0);
  EXPECT_EQ(costs.stages[0].chunks[1].activation_bytes, 0);
  EXPECT_GT(costs.stages[1].chunks[1].activation_bytes, 0);
  EXPECT_EQ(costs.tied_bytes, std::vector<int64_t>());
  EXPECT_EQ(costs.stages[1].static_bytes, 16 * 4 * 12 * 1024 * 1024);
}

TEST(StepCostsOfSpec, RefuseWhatDoesNotDivideAndWhatIsTooMuch) {
  const TrainingLayout layout = {.pp = 4, .micro_batch = 1, .global_batch = 4};
  EXPECT_EQ(step_costs_of_spec(kSpec, layout, {.chunks = 3}, kDevice, kHosts).error().message,
            "8 layers do not divide into pp=4 times 3 chunks");
  DeviceModel slow = kDevice;
  slow.flops_per_s = 1;
  EXPECT_EQ(step_costs_of_spec(kSpec, layout, {}, slow, kHosts).error().message,
            "stage 0: forward_ns is 1000000000000000, not 0 to 4398046511104");
}

}  // namespace
}  // namespace trireme
