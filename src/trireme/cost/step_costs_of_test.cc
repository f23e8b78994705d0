#include "trireme/cost/step_costs_of.h"

#include <gtest/gtest.h>

#include "trireme/graph/cuts.h"

namespace trireme {
namespace {

constexpr std::string_view kModel = R"(hint s0 = 3
parameter %w "a.weight" f32[8,4] grad
parameter %v "b.weight" f32[2,8] grad
input %x "x" f32[s0,4]
input %y "y" i64[s0]
%h = aten.linear.default(input=%x, weight=%w) -> f32[s0,8] @ a Linear
%r = aten.relu.default(self=%h) -> f32[s0,8] @ act ReLU
%o = aten.linear.default(input=%r, weight=%v) -> f32[s0,2] @ b Linear
%loss = aten.cross_entropy_loss.default(self=%o, target=%y) -> f32[] @ criterion Loss
return %loss
)";

// A flop takes a microsecond and a byte a nanosecond, so that no product waits for its bytes.
AnalyticOptions options() {
  AnalyticOptions options;
  options.device = {.flops_per_s = 1e6, .bytes_per_s = 1e9, .processors = 1, .tile = 1};
  options.device_name = "a slow one";
  return options;
}

Plan plan_of(const Graph& graph) {
  return build_plan(graph, "m.pt2", {.pp = 2, .dp = 2, .micro_batches = 4, .cut_modules = {"b"}})
      .value();
}

TEST(StepCostsOf, FollowFromFlopsAndBytesOfThreeSamples) {
  const Graph graph = parse_graph(kModel).value();
  const StepCosts costs = step_costs_of(graph, plan_of(graph), 3, nullptr, options()).value();
  ASSERT_EQ(costs.stages.size(), 2U);
  const ChunkCosts& first = costs.stages[0].chunks[0];
  // linear: 2 * 3 * 8 * 4 flops; relu reads and makes 96 bytes.
  EXPECT_EQ(first.forward, 192'000 + 2 * 96);
  EXPECT_EQ(first.recompute, first.forward);
  // relu: its result, and the gradients of result and operand. %x needs no gradient.
  EXPECT_EQ(first.input_gradient, 3 * 96);
  EXPECT_EQ(first.weight_gradient, 192'000);
  EXPECT_EQ(first.backward, first.input_gradient + first.weight_gradient);
  EXPECT_EQ(first.activation_bytes, 96);
  EXPECT_EQ(first.gradient_bytes, 0);
  EXPECT_EQ(first.kept_input_bytes, 0);
  const ChunkCosts& second = costs.stages[1].chunks[0];
  // linear: 2 * 3 * 2 * 8 flops; the loss reads 24 + 24 bytes and makes 4.
  EXPECT_EQ(second.forward, 96'000 + 52);
  // Its logarithms, and the gradients of 24 and 4 bytes.
  EXPECT_EQ(second.input_gradient, 96'000 + 24 + 24 + 4);
  EXPECT_EQ(second.weight_gradient, 96'000);
  EXPECT_EQ(second.activation_bytes, 0);
  EXPECT_EQ(second.gradient_bytes, 96);
  EXPECT_EQ(second.kept_input_bytes, 96);
}

TEST(StepCostsOf, CountMemoryFromWhereItIsMadeToItsLastUse) {
  const Graph graph = parse_graph(kModel).value();
  const StepCosts costs = step_costs_of(graph, plan_of(graph), 3, nullptr, options()).value();
  const ChunkCosts& first = costs.stages[0].chunks[0];
  EXPECT_EQ(first.kept_bytes, 0);       // %r is saved, but the message that is sent holds it
  EXPECT_EQ(first.deferred_bytes, 96);  // the gradient of %h; %x lies in memory anyway
  // The backward of relu has the gradients of %r and of %h.
  EXPECT_EQ(first.transient_bytes, 2 * 96);
  EXPECT_EQ(first.forward_peak_bytes, 2 * 96);  // %h and %r
  EXPECT_EQ(first.backward_peak_bytes, 2 * 96);
  EXPECT_EQ(first.split_peak_bytes, 2 * 96);
  const ChunkCosts& second = costs.stages[1].chunks[0];
  EXPECT_EQ(second.kept_bytes, 96 + 24);  // %r as received, and the logarithms of the loss
  EXPECT_EQ(second.deferred_bytes, 96 + 24);
  // The backward of linear has the gradients of %o and %r, and no logarithms any more.
  EXPECT_EQ(second.backward_peak_bytes, 96 + 24 + 96);
  EXPECT_EQ(second.transient_bytes, second.backward_peak_bytes - second.kept_bytes);
  // The loss has its logarithms, their gradient and that of %o beside %r; a linear that leaves its
  // weight for later keeps %r and the gradient of %o. Here both come to as much.
  EXPECT_EQ(second.split_peak_bytes, 96 + 24 + 96);
}

// The backward of the model in one stage: loss, linear b, relu, linear a.
TEST(StepCostsOf, ABucketIsFinalWhenTheBackwardHasPassedTheFirstNodeThatReadsIt) {
  const Graph graph = parse_graph(kModel).value();
  const PlanOptions one{.pp = 1, .dp = 2, .micro_batches = 4, .bucket_bytes = 1};
  const Plan plan = build_plan(graph, "m.pt2", one).value();
  const StepCosts costs = step_costs_of(graph, plan, 3, nullptr, options()).value();
  const StageCosts& stage = costs.stages[0];
  EXPECT_EQ(stage.bucket_bytes, (std::vector<int64_t>{64, 128}));
  // Loss and linear b, as in FollowFromFlopsAndBytesOfThreeSamples.
  EXPECT_EQ(stage.chunks[0].bucket_final,
            (std::vector<SimTime>{2 * 96'000 + 24 + 24 + 4, stage.chunks[0].backward}));
}

TEST(StepCostsOf, CountParametersGradientsAndWhatTheOptimizerKeeps) {
  const Graph graph = parse_graph(kModel).value();
  const StepCosts costs = step_costs_of(graph, plan_of(graph), 3, nullptr, options()).value();
  EXPECT_EQ(costs.stages[0].static_bytes, 4 * 128);  // weight, gradient and two states
  EXPECT_EQ(costs.stages[1].static_bytes, 4 * 64);
  // Two versions of weights and gradients, and the states once.
  const Partition partition = partition_by_plan(plan_of(graph), graph).value();
  EXPECT_EQ(static_bytes(graph, partition.stages[0], 2, 2), 6 * 128);
  EXPECT_EQ(costs.stages[0].bucket_bytes, std::vector<int64_t>{128});
  EXPECT_EQ(costs.stages[1].bucket_bytes, std::vector<int64_t>{64});
  // Weight and states are read and written, the gradient is passed over four times.
  EXPECT_EQ(costs.stages[0].update, 2 * 3 * 128 + 4 * 128);
  EXPECT_EQ(costs.stages[1].update, 2 * 3 * 64 + 4 * 64);
  EXPECT_EQ(costs.tied_bytes, std::vector<int64_t>());
  EXPECT_EQ(costs.scalar_bytes, 2 * 8 * 2 * 4);  // of 4 micro-batches of 2 replicas
  AnalyticOptions sgd = options();
  sgd.num_optimizer_states = 0;
  EXPECT_EQ(step_costs_of(graph, plan_of(graph), 3, nullptr, sgd).value().stages[0].static_bytes,
            2 * 128);
}

TEST(StepCostsOf, TheLayersOfAStageAddUpToItsPassesAndBuckets) {
  const Graph graph = parse_graph(kModel).value();
  const Plan whole = build_plan(graph, "m.pt2", {.dp = 2}).value();
  for (const Plan& plan : {plan_of(graph), whole}) {
    const StepCosts costs = step_costs_of(graph, plan, 3, nullptr, options()).value();
    const StepLayers layers = step_layers_of(graph, plan, 3, nullptr, options()).value();
    ASSERT_EQ(layers.size(), costs.stages.size());
    for (size_t s = 0; s < layers.size(); ++s) {
      LayerCosts sum;
      for (const LayerCosts& layer : layers[s][0]) {
        sum.forward += layer.forward;
        sum.backward += layer.backward;
        sum.gradient_bytes += layer.gradient_bytes;
      }
      EXPECT_EQ(sum.forward, costs.stages[s].chunks[0].forward);
      EXPECT_EQ(sum.backward, costs.stages[s].chunks[0].backward);
      EXPECT_EQ(sum.gradient_bytes, costs.stages[s].bucket_bytes[0]);
    }
  }
}

TEST(StepCostsOf, ATiedParameterBelongsToTheFirstLayerThatUsesIt) {
  const Graph graph = parse_graph(R"(hint s0 = 3
parameter %w "a.weight" f32[4,4] grad
input %x "x" f32[s0,4]
input %y "y" i64[s0]
%h = aten.linear.default(input=%x, weight=%w) -> f32[s0,4] @ a Linear
%r = aten.relu.default(self=%h) -> f32[s0,4] @ act ReLU
%o = aten.linear.default(input=%r, weight=%w) -> f32[s0,4] @ b Linear
%loss = aten.cross_entropy_loss.default(self=%o, target=%y) -> f32[] @ criterion Loss
return %loss
)")
                          .value();
  const Plan plan = build_plan(graph, "m.pt2", {.dp = 2}).value();
  const StepLayers layers = step_layers_of(graph, plan, 3, nullptr, options()).value();
  ASSERT_GE(layers[0][0].size(), 2U);
  EXPECT_EQ(layers[0][0].front().gradient_bytes, 64);
  EXPECT_EQ(layers[0][0].back().gradient_bytes, 0);
}

TEST(StepCostsOf, WhatWasMeasuredComesBeforeTheModel) {
  const Graph graph = parse_graph(kModel).value();
  const Plan plan = plan_of(graph);
  const StepCosts analytic = step_costs_of(graph, plan, 3, nullptr, options()).value();
  Profile measured = analytic_profile(graph, "m.pt2", {2, 4}, options()).value();
  for (BlockProfile& block : measured.blocks) {
    block.update.reset();
    for (BlockSize& size : block.sizes) {
      for (std::optional<PassSeconds>& pass : size.passes) pass->seconds *= 3;
      size.passes[static_cast<size_t>(BlockPass::kRecompute)].reset();
      size.kept_bytes->bytes += 1000;
    }
  }
  const StepCosts costs = step_costs_of(graph, plan, 3, &measured, options()).value();
  for (size_t stage = 0; stage < 2; ++stage) {
    const ChunkCosts& before = analytic.stages[stage].chunks[0];
    const ChunkCosts& after = costs.stages[stage].chunks[0];
    EXPECT_EQ(after.forward, 3 * before.forward);  // the line between 2 and 4 samples
    EXPECT_EQ(after.backward, 3 * before.backward);
    EXPECT_EQ(after.recompute, before.recompute);
    EXPECT_EQ(costs.stages[stage].update, analytic.stages[stage].update);
  }
  // Of the loss, a whole block; the plan cuts the other one, and nobody knows who keeps what.
  EXPECT_EQ(costs.stages[0].chunks[0].kept_bytes, analytic.stages[0].chunks[0].kept_bytes);
  EXPECT_EQ(costs.stages[1].chunks[0].kept_bytes, analytic.stages[1].chunks[0].kept_bytes + 1000);
}

TEST(StepCostsOf, ABlockThatIsCutIsDividedAsTheModelDividesIt) {
  const Graph graph = parse_graph(kModel).value();
  ASSERT_EQ(profile_blocks(graph).value(), (std::vector<int32_t>{0, 3}));
  Profile measured = analytic_profile(graph, "m.pt2", {3}, options()).value();
  auto& forward = measured.blocks[0].sizes[0].passes[static_cast<size_t>(BlockPass::kForward)];
  forward->seconds = 1;  // in the model 192192 ns before the cut and 96000 behind it
  const StepCosts costs = step_costs_of(graph, plan_of(graph), 3, &measured, options()).value();
  EXPECT_EQ(costs.stages[0].chunks[0].forward, to_sim_time(192'192.0 / 288'192));
  EXPECT_EQ(costs.stages[1].chunks[0].forward, to_sim_time(96'000.0 / 288'192 + 52e-9));
}

TEST(StepCostsOf, RefusesAProfileOfAnotherModel) {
  const Graph graph = parse_graph(kModel).value();
  Profile measured = analytic_profile(graph, "m.pt2", {3}, options()).value();
  measured.num_nodes = 5;
  const Result<StepCosts> costs = step_costs_of(graph, plan_of(graph), 3, &measured, options());
  EXPECT_EQ(costs.error().message, "the profile is of a model of 5 nodes, not of 4; make it again");
}

TEST(AnalyticProfile, SaysWhereItComesFromAndSurvivesItsText) {
  const Graph graph = parse_graph(kModel).value();
  const Profile profile = analytic_profile(graph, "m.pt2", {1, 3}, options()).value();
  EXPECT_EQ(profile.blocks[0].first_node, "h");
  EXPECT_EQ(profile.blocks[0].sizes[1].kept_bytes->bytes, 96);
  EXPECT_EQ(profile.blocks[0].sizes[1].passes[0]->source, CostSource::kAnalytic);
  EXPECT_EQ(parse_profile(to_text(profile)).value(), profile);
}

}  // namespace
}  // namespace trireme
