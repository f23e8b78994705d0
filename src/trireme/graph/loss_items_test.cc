#include "trireme/graph/loss_items.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// A graph of classes o and targets t of a loss that `nodes` make; they end with the return.
Graph graph_of(const std::string& nodes) {
  Graph graph = parse_graph(R"(batch s0
parameter %w "w" f32[3] grad
buffer %c "c" f32[3]
input %o "o" f32[s0,3]
input %t "t" i64[s0]
)" + nodes)
                    .value();
  EXPECT_TRUE(verify_graph(graph).ok());
  return graph;
}

std::string derived(const std::string& nodes) {
  Graph graph = graph_of(nodes);
  derive_items(graph);
  EXPECT_TRUE(verify_graph(graph).ok()) << verify_graph(graph).error().message;
  return items_to_text(graph);
}

constexpr const char* kMeanOfTargets =
    "%l = aten.cross_entropy_loss.default(self=%o, target=%t) -> f32[]\n";

TEST(LossItems, TheTargetsOfAMeanAreCountedBehindIt) {
  Graph graph = graph_of(std::string(kMeanOfTargets) +
                         "%t_ = aten.zero_.default(self=%t) -> i64[s0]\nreturn %l\n");
  derive_items(graph);
  const std::string text = to_text(graph);
  EXPECT_EQ(text.substr(text.find("%l =")),
            R"(%l = aten.cross_entropy_loss.default(self=%o, target=%t) -> f32[]
%items = aten.ne.Scalar(self=%t, other=-100) -> bool[s0]
%items_1 = aten.sum.default(self=%items, dtype=dtype:f64) -> f64[]
%t_ = aten.zero_.default(self=%t) -> i64[s0]
return %l, %items_1
)");
}

TEST(LossItems, WeightsOfClassesAreSummed) {
  Graph graph = graph_of(
      "%items = aten.nll_loss_nd.default(self=%o, target=%t, weight=%c, ignore_index=7) -> f32[]\n"
      "return %items, s0\n");
  derive_items(graph);
  const std::string text = to_text(graph);
  EXPECT_EQ(text.substr(text.find("%items_1 =")),
            R"(%items_1 = aten.ne.Scalar(self=%t, other=7) -> bool[s0]
%items_2 = aten.where.ScalarOther(condition=%items_1, self=%t, other=0) -> i64[s0]
%items_3 = aten.to.dtype(self=%items_2, dtype=dtype:i64) -> i64[s0]
%items_4 = aten.index.Tensor(self=%c, indices={%items_3}) -> f32[s0]
%items_5 = aten.mul.Tensor(self=%items_4, other=%items_1) -> f32[s0]
%items_6 = aten.sum.default(self=%items_5, dtype=dtype:f64) -> f64[]
return %items, %items_6
)");
  EXPECT_EQ(items_to_text(graph), "%items_6, the weights %c of the targets %t other than 7");
}

TEST(LossItems, AViewAMultipleAndASumWithAPenaltyOfAMeanHaveItsItems) {
  const std::string counted = "%items_1, the targets %t other than -100";
  for (const char* node : {
           "%v = aten.view.default(self=%l, size=[1]) -> f32[1]\n"
           "%x = aten.mean.default(self=%v) -> f32[]\n",
           "%x = aten.to.dtype(self=%l, dtype=dtype:f64) -> f64[]\n",
           "%x = aten.mul.Tensor(self=%l, other=0.5) -> f32[]\n",
           "%x = aten.div_.Tensor(self=%l, other=4) -> f32[]\n",
           "%p = aten.norm.Scalar(self=%w) -> f32[]\n"
           "%y = aten.add.Tensor(self=%p, other=%l) -> f32[]\n"
           "%x = aten.sub.Tensor(self=%y, other=0.1) -> f32[]\n",
       }) {
    EXPECT_EQ(derived(kMeanOfTargets + std::string(node) + "return %x, s0\n"), counted) << node;
  }
}

TEST(LossItems, WhatIsNotTheMeanOfOneLossKeepsTheBatch) {
  for (const char* node : {
           "%x = aten.mul.Tensor(self=%l, other=s0) -> f32[]\n",  // of more than one item
           "%m = aten.mean.default(self=%o) -> f32[]\n"  // a sum with something of the samples
           "%x = aten.add.Tensor(self=%l, other=%m) -> f32[]\n",
           "%x = aten.add.Tensor(self=%l, other=s0) -> f32[]\n",
           "%x = aten.sqrt.default(self=%l) -> f32[]\n",          // no multiple
           "%x = aten.mul.Tensor(self=%l, other=%l) -> f32[]\n",  // a square
           "%v = aten.view.default(self=%l, size=[]) -> f32[]\n"  // the memory changes
           "%u = aten.exp_.default(self=%l) -> f32[]\n"
           "%x = aten.clone.default(self=%v) -> f32[]\n",
           "%x = aten.div.Tensor_mode(self=%l, other=4, rounding_mode=\"floor\") -> f32[]\n",
       }) {
    EXPECT_EQ(derived(kMeanOfTargets + std::string(node) + "return %x, s0\n"), "s0") << node;
    EXPECT_EQ(derived(kMeanOfTargets + std::string(node) + "return %x\n"), "the batch") << node;
  }
  for (const char* loss : {
           "%l = aten.cross_entropy_loss.default(self=%o, target=%t, reduction=2) -> f32[]\n",
           "%l = aten.cross_entropy_loss.default(self=%o, target=%o) -> f32[]\n",
           "%l = aten.cross_entropy_loss.default(self=%o, target=%t, ignore_index=s0) -> f32[]\n",
           "%l = aten.mse_loss.default(self=%w, target=%w) -> f32[]\n",
       }) {
    EXPECT_EQ(derived(std::string(loss) + "return %l\n"), "the batch") << loss;
  }
}

TEST(LossItems, TheModelHasAsManyNodesWhoeverCounts) {
  const std::string mean =
      "%h = aten.tanh.default(self=%o) -> f32[s0,3]\n" + std::string(kMeanOfTargets);
  Graph graph = graph_of(mean + "return %l\n");
  EXPECT_EQ(num_model_nodes(graph), 1);  // what nothing needs is no part of it
  graph = graph_of("%h = aten.tanh_.default(self=%c) -> f32[3]\n" + std::string(kMeanOfTargets) +
                   "return %l\n");
  EXPECT_EQ(num_model_nodes(graph), 2);
  derive_items(graph);
  EXPECT_EQ(graph.nodes.size(), 4);
  EXPECT_EQ(num_model_nodes(graph), 2);
  EXPECT_EQ(num_model_nodes(graph_of("%k = aten.ne.Scalar(self=%t, other=-100) -> bool[s0]\n"
                                     "%n = aten.sum.default(self=%k) -> i64[]\n" +
                                     std::string(kMeanOfTargets) + "return %l, %n\n")),
            1);
}

TEST(LossItems, ItemsOfTheModelsOwnStay) {
  EXPECT_EQ(derived(kMeanOfTargets + std::string("return %l, 5\n")), "5");
  EXPECT_EQ(derived(kMeanOfTargets + std::string("%n = aten.sum.default(self=%t) -> i64[]\n"
                                                 "return %l, %n\n")),
            "%n");
}

}  // namespace
}  // namespace trireme
