#include "trireme/graph/draws.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// "OP KEY DIM BLOCKS" of each node that draws, in a graph of these lines.
std::vector<std::string> draws_of(const std::string& lines) {
  const Graph graph =
      parse_graph("parameter %w \"w\" f32[8,16] grad\ninput %x \"x\" f32[s0,4,8]\n" + lines +
                  "%loss = aten.sum.default(self=%x) -> f32[]\nreturn %loss\n")
          .value();
  const std::vector<std::optional<Draw>> draws = analyze_draws(graph);
  std::vector<std::string> found;
  for (size_t i = 0; i < draws.size(); ++i) {
    if (!draws[i].has_value()) continue;
    std::string text = graph.nodes[i].op + " " + std::string(to_text(draws[i]->key));
    if (draws[i]->key == DrawKey::kSample) {
      text += " " + std::to_string(draws[i]->place.dim) + " " + to_text(draws[i]->place.blocks);
    }
    found.push_back(text);
  }
  return found;
}

using Found = std::vector<std::string>;

TEST(Draws, AreKeyedByTheSampleWhereADimIsTheBatch) {
  EXPECT_EQ(draws_of("%a = aten.dropout.default(input=%x, p=0.5, train=true) -> f32[s0,4,8]\n"
                     "%b = aten.rand.default(size=[3,s0]) -> f32[3,s0]\n"
                     "%e = aten.empty_like.default(self=%x) -> f32[s0,4,8]\n"
                     "%c = aten.uniform_.default(self=%e) -> f32[s0,4,8]\n"),
            (Found{"aten.dropout.default sample 0 1", "aten.rand.default sample 1 1",
                   "aten.uniform_.default sample 0 1"}));
}

TEST(Draws, FollowTheSamplesThroughMergedDims) {
  EXPECT_EQ(
      draws_of("%v = aten.view.default(self=%x, size=[-1,8]) -> f32[mul(4,s0),8]\n"
               "%l = aten.relu.default(self=%v) -> f32[mul(4,s0),8]\n"
               "%a = aten.dropout.default(input=%l, p=0.5, train=true) -> f32[mul(4,s0),8]\n"),
      (Found{"aten.dropout.default sample 0 1"}));
  // Positions first: the merged dim counts 4 blocks of samples.
  EXPECT_EQ(draws_of("%t = aten.transpose.int(self=%x, dim0=0, dim1=1) -> f32[4,s0,8]\n"
                     "%v = aten.reshape.default(self=%t, shape=[-1,8]) -> f32[mul(4,s0),8]\n"
                     "%a = aten.dropout.default(input=%v, p=0.5, train=true) -> f32[mul(4,s0),8]\n"
                     "%b = aten.view.default(self=%a, size=[4,-1,8]) -> f32[4,s0,8]\n"
                     "%c = aten.rand_like.default(self=%b) -> f32[4,s0,8]\n"),
            (Found{"aten.dropout.default sample 0 4", "aten.rand_like.default sample 1 1"}));
  EXPECT_EQ(draws_of("%c = aten.cat.default(tensors={%x, %x}) -> f32[mul(2,s0),4,8]\n"
                     "%a = aten.randn_like.default(self=%c) -> f32[mul(2,s0),4,8]\n"),
            (Found{"aten.randn_like.default sample 0 2"}));
}

TEST(Draws, AreKeyedByTheMicroBatchWhereNoDimCountsSamples) {
  EXPECT_EQ(draws_of("%a = aten.randn.default(size=[16]) -> f32[16]\n"
                     "%b = aten.randperm.default(n=s0) -> i64[s0]\n"
                     "%c = aten.rand.default(size=[s0,s0]) -> f32[s0,s0]\n"
                     "%d = aten.rand.default(size=[add(s0,1)]) -> f32[add(s0,1)]\n"
                     "%m = aten.mean.dim(self=%x, dim=[0]) -> f32[4,8]\n"
                     "%e = aten.bernoulli.p(self=%m, p=0.5) -> f32[4,8]\n"
                     "%f = aten.rand.default(size=[mul(2,s0)]) -> f32[mul(2,s0)]\n"),
            (Found{"aten.randn.default micro-batch", "aten.randperm.default micro-batch",
                   "aten.rand.default micro-batch", "aten.rand.default micro-batch",
                   "aten.bernoulli.p micro-batch", "aten.rand.default micro-batch"}));
  // Rows taken by an index are no longer in the order of the samples.
  EXPECT_EQ(draws_of("%v = aten.view.default(self=%x, size=[-1,8]) -> f32[mul(4,s0),8]\n"
                     "%i = aten.randperm.default(n=mul(4,s0)) -> i64[mul(4,s0)]\n"
                     "%j = aten.index.Tensor(self=%v, indices={%i}) -> f32[mul(4,s0),8]\n"
                     "%a = aten.rand_like.default(self=%j) -> f32[mul(4,s0),8]\n"),
            (Found{"aten.randperm.default micro-batch", "aten.rand_like.default micro-batch"}));
  // One number a channel, and the samples lie among what shares it.
  EXPECT_EQ(
      draws_of("%t = aten.permute.default(self=%x, dims=[1,2,0]) -> f32[4,8,s0]\n"
               "%a = aten.feature_dropout.default(input=%t, p=0.5, train=true) -> f32[4,8,s0]\n"),
      (Found{"aten.feature_dropout.default micro-batch"}));
}

TEST(Draws, OfAWeightAreOneForAllMicroBatches) {
  EXPECT_EQ(draws_of("%a = aten.dropout.default(input=%w, p=0.5, train=true) -> f32[8,16]\n"
                     "%b = aten.randn_like.default(self=%a) -> f32[8,16]\n"
                     "%n = aten.randn.default(size=[16]) -> f32[16]\n"
                     "%s = aten.add.Tensor(self=%a, other=%n) -> f32[8,16]\n"
                     "%c = aten.randn_like.default(self=%s) -> f32[8,16]\n"),
            (Found{"aten.dropout.default step", "aten.randn_like.default step",
                   "aten.randn.default micro-batch", "aten.randn_like.default micro-batch"}));
}

TEST(Draws, WhatDraws) {
  struct Row {
    std::string call;
    bool in_training;
    bool in_evaluation;
  };
  for (const Row& row :
       {Row{"aten.exponential_.default(self=%x)", true, true},
        Row{"aten.uniform_.default(self=%x)", true, true},
        Row{"aten.bernoulli.p(self=%x, p=0.5)", true, true},
        Row{"aten.dropout.default(input=%x, p=0.5, train=true)", true, false},
        Row{"aten.dropout.default(input=%x, p=0.5, train=false)", false, false},
        Row{"aten.dropout.default(input=%x, p=0.0, train=true)", false, false},
        Row{"aten.rrelu.default(self=%x)", false, false},
        Row{"aten.rrelu.default(self=%x, training=true)", true, false},
        Row{"aten.gru.input(input=%x, num_layers=2, dropout=0.5, train=true)", true, false},
        Row{"aten.gru.input(input=%x, num_layers=1, dropout=0.5, train=true)", false, false},
        Row{"aten.scaled_dot_product_attention.default(query=%x)", false, false},
        Row{"aten.scaled_dot_product_attention.default(query=%x, dropout_p=0.1)", true, false},
        Row{"own.rand.default(self=%x)", false, false},
        Row{"aten.relu.default(self=%x)", false, false}}) {
    const Graph graph = parse_graph("input %x \"x\" f32[8]\n%a = " + row.call +
                                    " -> f32[8]\n%loss = aten.sum.default(self=%a) -> f32[]\n"
                                    "return %loss\n")
                            .value();
    EXPECT_EQ(is_random(graph.nodes[0]), row.in_training) << row.call;
    EXPECT_EQ(is_random_in_evaluation(graph.nodes[0]), row.in_evaluation) << row.call;
  }
}

TEST(Draws, WhatCannotBeCountedIsRefusedWithTheWayOut) {
  const auto why = [](std::string op) { return why_no_draw({.op = std::move(op), .module = "m"}); };
  EXPECT_EQ(why("aten.poisson.default"),
            "aten.poisson.default of module 'm' draws from torch's own generator, whose numbers "
            "depend on the layout; draw with rand, randn, exponential_, bernoulli or multinomial "
            "instead");
  EXPECT_EQ(why("aten.lstm.data"),
            "aten.lstm.data of module 'm' draws from torch's own generator, whose numbers depend "
            "on the layout; pad the sequences instead of packing them, or set its dropout to 0");
  EXPECT_EQ(why("aten.lstm.input"), "");
  EXPECT_EQ(why("aten.rand.default"), "");
}

TEST(Draws, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const DrawRule& rule : draw_rules())
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
}

}  // namespace
}  // namespace trireme
