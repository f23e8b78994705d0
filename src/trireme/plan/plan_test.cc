#include "trireme/plan/plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/plan/gradients.h"

namespace trireme {
namespace {

// Two residual blocks with a mask that both use, a skip connection over the middle, a tied weight.
constexpr std::string_view kModel = R"(hint s0 = 3
parameter %w "embed.weight" "head.weight" f32[8,8] grad
parameter %a "block.0.weight" f32[8,8] grad
parameter %b "block.1.weight" f32[8,8] grad
buffer %mask "mask" f32[8] transient
input %x "x" f32[s0,8]
input %y "y" i64[s0]
%m = aten.mul.Tensor(self=%mask, other=2) -> f32[8]
%e = aten.linear.default(input=%x, weight=%w) -> f32[s0,8] @ embed Linear
%h = aten.linear.default(input=%e, weight=%a) -> f32[s0,8] @ block.0 Linear
%hm = aten.mul.Tensor(self=%h, other=%m) -> f32[s0,8] @ block.0 Linear
%h_ = aten.relu_.default(self=%hm) -> f32[s0,8] @ block.0 Linear
%k = aten.linear.default(input=%h_, weight=%b) -> f32[s0,8] @ block.1 Linear
%km = aten.mul.Tensor(self=%k, other=%m) -> f32[s0,8] @ block.1 Linear
%s = aten.add.Tensor(self=%km, other=%e) -> f32[s0,8] @ block.1 Linear
%o = aten.linear.default(input=%s, weight=%w) -> f32[s0,8] @ head Linear
%loss = aten.cross_entropy_loss.default(self=%o, target=%y) -> f32[]
return %loss
)";

std::vector<std::string> names(const Graph& graph, const std::vector<BoundaryValue>& values) {
  std::vector<std::string> result;
  for (const BoundaryValue& boundary : values) {
    result.push_back(graph.values[boundary.value.value].name);
  }
  return result;
}

TEST(Partition, ForwardsSkipsReplicatesMasksAndGivesTiedParametersToTheirUses) {
  const Graph graph = parse_graph(kModel).value();
  const Plan plan =
      build_plan(graph, "m.pt2", {.pp = 3, .cut_modules = {"block.1", "head"}}).value();
  const Partition partition = partition_by_plan(plan, graph).value();
  EXPECT_EQ(names(graph, partition.virtual_stages[0].sends), (std::vector<std::string>{"e", "h_"}));
  EXPECT_EQ(names(graph, partition.virtual_stages[1].receives),
            (std::vector<std::string>{"e", "h_"}));
  EXPECT_EQ(names(graph, partition.virtual_stages[1].sends), (std::vector<std::string>{"s"}));
  EXPECT_TRUE(partition.virtual_stages[1].sends[0].carries_gradient);
  // Stage 1 runs the mask's node itself.
  EXPECT_EQ(partition.stages[1].nodes.front(), NodeId(0));
  ASSERT_EQ(partition.tied.size(), 1u);
  EXPECT_EQ(partition.tied[0].stages, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(plan.stages[2].inputs, (std::vector<std::string>{"y"}));
  EXPECT_EQ(plan.stages[1].bytes_in, 2 * 8 * 4);
}

// A buffer and a parameter that the forward pass changes, each in its own stage, and a moving
// average.
constexpr std::string_view kChanging = R"(parameter %w "w" f32[8,8] grad
parameter %v "v" f32[8,8] grad
buffer %scale "scale" f32[8]
buffer %mean "norm.running_mean" f32[8]
buffer %var "norm.running_var" f32[8]
input %x "x" f32[s0,8]
%scale_ = aten.mul_.Tensor(self=%scale, other=0.5) -> f32[8]
%a = aten.linear.default(input=%x, weight=%w) -> f32[s0,8] @ first Linear
%b = aten.mul.Tensor(self=%a, other=%scale_) -> f32[s0,8] @ first Linear
%n = aten.batch_norm.default(input=%b, weight=None, bias=None, running_mean=%mean, running_var=%var, training=true, momentum=0.1, eps=1e-05, cudnn_enabled=true) -> f32[s0,8] @ norm BatchNorm1d
%v_ = aten.clamp_.default(self=%v, min=-1) -> f32[8,8] @ last Linear
%c = aten.linear.default(input=%n, weight=%v_) -> f32[s0,8] @ last Linear
%loss = aten.sum.default(self=%c) -> f32[]
return %loss
)";

TEST(Partition, AStageOfChunksHoldsTheirNodesAndInputsEachOnce) {
  const Graph graph = parse_graph(kChanging).value();
  for (const Placement placement : {Placement::kLooped, Placement::kV}) {
    const Plan plan =
        build_plan(graph, "m.pt2", {.pp = 2, .chunks = 2, .placement = placement}).value();
    ASSERT_EQ(plan.stages.size(), 4U);
    EXPECT_TRUE(verify_plan(plan, graph).ok());
    EXPECT_EQ(parse_plan(to_text(plan)).value(), plan);
    const Partition partition = partition_by_plan(plan, graph).value();
    const bool is_looped = placement == Placement::kLooped;
    EXPECT_EQ(partition.stages[0].virtual_stages, (std::vector<int32_t>{0, is_looped ? 2 : 3}));
    EXPECT_EQ(partition.stages[1].virtual_stages, (std::vector<int32_t>{1, is_looped ? 3 : 2}));
    std::vector<NodeId> nodes;
    for (const Stage& stage : partition.stages) {
      EXPECT_TRUE(std::ranges::is_sorted(stage.nodes));
      nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
    }
    EXPECT_EQ(nodes.size(), graph.nodes.size());
  }
}

TEST(Gradients, WhatForwardChangesIsKnownByStageAndRefusedForReplicas) {
  const Graph graph = parse_graph(kChanging).value();
  const Plan plan = build_plan(graph, "m.pt2", {.pp = 3, .cut_modules = {"norm", "last"}}).value();
  const Partition partition = partition_by_plan(plan, graph).value();
  const auto changed = [&](size_t stage) {
    std::vector<std::string> names;
    for (const int32_t input : changed_buffers(graph, partition.virtual_stages[stage])) {
      names.push_back(graph.inputs[input].names[0]);
    }
    return names;
  };
  EXPECT_EQ(changed(0), (std::vector<std::string>{"scale"}));
  EXPECT_EQ(changed(1), (std::vector<std::string>{"norm.running_mean", "norm.running_var"}));
  EXPECT_EQ(changed(2), (std::vector<std::string>{}));
  for (const Stage& stage : partition.stages)
    EXPECT_EQ(reductions_of(graph, stage, 1, {}).value().num, 0);
  EXPECT_EQ(reductions_of(graph, partition.stages[0], 2, {}).error().message,
            "the forward pass changes buffer 'scale' by aten.mul_.Tensor, which replicas cannot "
            "combine; use --dp 1");
  EXPECT_EQ(reductions_of(graph, partition.stages[1], 2, {}).value().num, 1);
  EXPECT_EQ(reductions_of(graph, partition.stages[2], 2, {}).error().message,
            "the forward pass changes parameter 'v' by aten.clamp_.default, which replicas cannot "
            "combine; use --dp 1");
}

std::vector<std::vector<std::string>> bucket_names(const Graph& graph,
                                                   const std::vector<GradientBucket>& buckets) {
  std::vector<std::vector<std::string>> names;
  for (const GradientBucket& bucket : buckets) {
    names.emplace_back(bucket.is_tied ? std::vector<std::string>{"tied"}
                                      : std::vector<std::string>());
    for (const int32_t input : bucket.inputs) names.back().push_back(graph.inputs[input].names[0]);
  }
  return names;
}

// "embed.weight" is read first, and by the head again; a parameter has 256 bytes.
TEST(Gradients, BucketsAreInTheOrderInWhichABackwardIsDoneWithThem) {
  using Names = std::vector<std::vector<std::string>>;
  const Graph graph = parse_graph(kModel).value();
  const Plan whole = build_plan(graph, "m.pt2", {}).value();
  const Partition one = partition_by_plan(whole, graph).value();
  const auto buckets = [&](const Partition& partition, size_t stage, int64_t bytes) {
    return bucket_names(graph, gradient_buckets(graph, partition.stages[stage],
                                                {.bytes = bytes, .tied = tied_inputs(partition)}));
  };
  EXPECT_EQ(buckets(one, 0, 1), (Names{{"block.1.weight"}, {"block.0.weight"}, {"embed.weight"}}));
  EXPECT_EQ(buckets(one, 0, 512), (Names{{"block.1.weight", "block.0.weight"}, {"embed.weight"}}));
  // The first stage and the last one hold the embedding.
  const Plan cut = build_plan(graph, "m.pt2", {.pp = 2, .cut_modules = {"block.1"}}).value();
  const Partition two = partition_by_plan(cut, graph).value();
  EXPECT_EQ(buckets(two, 0, 1 << 20), (Names{{"block.0.weight"}, {"tied", "embed.weight"}}));
  EXPECT_EQ(buckets(two, 1, 1 << 20), (Names{{"block.1.weight"}, {"tied", "embed.weight"}}));
  const Reductions reductions =
      reductions_of(graph, two.stages[1], 2, {.bytes = 1 << 20, .tied = tied_inputs(two)}).value();
  EXPECT_EQ(reductions.num, 2);
  EXPECT_EQ(reductions.num_tied, 1);
}

TEST(Gradients, ABucketFollowsTheNodesAndNotTheOrderInWhichParametersAreDeclared) {
  const Graph graph = parse_graph(R"(input %x "x" f32[s0,8]
parameter %last "last" f32[8,8] grad
parameter %first "first" f32[8,8] grad
%a = aten.linear.default(input=%x, weight=%first) -> f32[s0,8]
%b = aten.linear.default(input=%a, weight=%last) -> f32[s0,8]
%loss = aten.mean.default(self=%b) -> f32[]
return %loss
)")
                          .value();
  const Partition one = partition_by_plan(build_plan(graph, "m.pt2", {}).value(), graph).value();
  EXPECT_EQ(bucket_names(graph, gradient_buckets(graph, one.stages[0], {.bytes = 1})),
            (std::vector<std::vector<std::string>>{{"last"}, {"first"}}));
}

TEST(Gradients, AParameterReadForItsShapeOrItsValueAloneGetsNone) {
  const Graph graph = parse_graph(R"(input %x "x" f32[s0,8]
parameter %w "w" f32[8,8] grad
parameter %shape "shape" f32[8] grad
parameter %value "value" f32[8] grad
parameter %unused "unused" f32[8] grad
parameter %frozen "frozen" f32[8]
%a = aten.linear.default(input=%x, weight=%w) -> f32[s0,8]
%n = aten.new_full.default(self=%shape, size=[8], fill_value=2) -> f32[8]
%d = aten.detach.default(self=%value) -> f32[8]
%b = aten.mul.Tensor(self=%a, other=%n) -> f32[s0,8]
%c = aten.mul.Tensor(self=%b, other=%d) -> f32[s0,8]
%e = aten.mul.Tensor(self=%c, other=%frozen) -> f32[s0,8]
%loss = aten.sum.default(self=%e) -> f32[]
return %loss
)")
                          .value();
  EXPECT_EQ(gets_gradient(graph), (std::vector<bool>{false, true, false, false, false, false}));
}

TEST(Plan, TextIsInvertible) {
  const Graph graph = parse_graph(kModel).value();
  const Plan plan = build_plan(graph, "m.pt2", {.pp = 2, .dp = 3, .micro_batches = 4}).value();
  const Result<Plan> again = parse_plan(to_text(plan));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value(), plan);
  EXPECT_TRUE(verify_plan(plan, graph).ok());
  Plan other = plan;
  other.communication = "end";
  other.order = "schedule text stages=2\nrank 0: F0 B0\nrank 1: F0 B0\n";
  other.bucket_bytes = 1 << 20;
  other.extra_warm_ups = {1};
  EXPECT_EQ(parse_plan(to_text(other)).value(), other);
  EXPECT_NE(parse_plan(to_text(plan)).value(), other);
}

TEST(Plan, RefusesWhatCannotBeCut) {
  const Graph graph = parse_graph(kModel).value();
  const auto message = [&](PlanOptions options) {
    const Result<Plan> plan = build_plan(graph, "m.pt2", options);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(message({.pp = 2, .cut_modules = {"nothing"}}),
            "--cut names the module 'nothing', which the model does not have; trireme inspect "
            "lists those it can be cut before");
  EXPECT_EQ(message({.pp = 2, .cut_modules = {"embed"}}),
            "the model cannot be cut before module 'embed': nothing comes before it");
  EXPECT_EQ(message({.pp = 3, .cut_modules = {"head"}}),
            "--cut names 1 module, but --pp 3 needs 2");
  EXPECT_EQ(message({.pp = 3, .cut_modules = {"head", "block.1"}}),
            "--cut names 'block.1' after a module that runs later");
  EXPECT_EQ(message({.pp = 20}),
            "the model can be cut at 7 places, which makes 8 stages, not --pp 20");
  EXPECT_EQ(message({.pp = 0}), "--pp 0, --dp 1 and --micro-batches 1 must be at least 1");
  Plan plan = build_plan(graph, "m.pt2", {.pp = 2}).value();
  plan.stages[1].first_node = "h_";
  EXPECT_EQ(verify_plan(plan, graph).error().message,
            "stage 1 of the plan cannot begin at h_: aten.relu_.default changes %hm in place");
  plan.stages[1].first_node = "zzz";
  EXPECT_EQ(verify_plan(plan, graph).error().message,
            "the plan names the node zzz, which the model does not have; make the plan again with "
            "trireme plan");
}

TEST(Plan, BalancesFlopsOverAChainOfEqualLayers) {
  const Graph graph = parse_graph(R"(input %x "x" f32[s0,8]
parameter %w "w" f32[8,8] grad
%a = aten.linear.default(input=%x, weight=%w) -> f32[s0,8] @ l.0 Linear
%b = aten.linear.default(input=%a, weight=%w) -> f32[s0,8] @ l.1 Linear
%c = aten.linear.default(input=%b, weight=%w) -> f32[s0,8] @ l.2 Linear
%d = aten.linear.default(input=%c, weight=%w) -> f32[s0,8] @ l.3 Linear
%loss = aten.sum.default(self=%d) -> f32[]
return %loss
)")
                          .value();
  const Plan plan = build_plan(graph, "m.pt2", {.pp = 2}).value();
  EXPECT_EQ(plan.stages[1].first_module, "l.2");
  EXPECT_NEAR(plan.stages[0].flops_share, 0.5, 0.02);
}

TEST(Plan, TextThatIsNotUtf8IsRefused) {
  const Result<Plan> plan = parse_plan("format: trireme-plan-1\nschedule: 1f\xff\n");
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().message, "it is not UTF-8 text");
}

}  // namespace
}  // namespace trireme
