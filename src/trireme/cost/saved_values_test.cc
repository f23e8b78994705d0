#include "trireme/cost/saved_values.h"

#include <gtest/gtest.h>

#include "trireme/graph/cuts.h"

namespace trireme {
namespace {

// Of the whole graph, with 2 samples.
int64_t kept_bytes(const std::string& nodes) {
  const Graph graph = parse_graph(R"(hint s0 = 2
parameter %w "weight" f32[4,4] grad
input %x "x" f32[s0,3,4]
input %mask "mask" bool[s0,3,4]
input %y "y" i64[s0]
)" + nodes + "\n%loss = aten.sum.default(self=%last) -> f32[]\nreturn %loss\n")
                          .value();
  const SavedValues saved(graph, example_symbols(graph, 2));
  std::vector<NodeId> ids;
  for (size_t i = 0; i < graph.nodes.size(); ++i) ids.emplace_back(static_cast<int64_t>(i));
  return saved.kept_bytes(ids);
}

constexpr std::string_view kLinear =
    "%h = aten.linear.default(input=%x, weight=%w) -> f32[s0,3,4]\n";
constexpr int64_t kTensor = 2 * 3 * 4 * 4;  // bytes of %h

int64_t kept_after_linear(const std::string& node) {
  return kept_bytes(std::string(kLinear) + node);
}

TEST(SavedValues, TheBatchAndParametersDoNotCount) {
  EXPECT_EQ(kept_bytes("%last = aten.linear.default(input=%x, weight=%w) -> f32[s0,3,4]"), 0);
}

TEST(SavedValues, ATensorThatSeveralOperatorsSaveCountsOnce) {
  // relu saves its result, and linear the same as its input.
  EXPECT_EQ(kept_after_linear("%r = aten.relu.default(self=%h) -> f32[s0,3,4]\n"
                              "%last = aten.linear.default(input=%r, weight=%w) -> f32[s0,3,4]"),
            kTensor);
}

TEST(SavedValues, AProductSavesAFactorWhenTheOtherHasAGradient) {
  EXPECT_EQ(kept_after_linear("%last = aten.mul.Tensor(self=%h, other=2) -> f32[s0,3,4]"), 0);
  // %x lies in memory anyway.
  EXPECT_EQ(kept_after_linear("%last = aten.mul.Tensor(self=%h, other=%x) -> f32[s0,3,4]"), 0);
  EXPECT_EQ(kept_after_linear("%last = aten.mul.Tensor(self=%h, other=%h) -> f32[s0,3,4]"),
            kTensor);
}

TEST(SavedValues, AViewIsTheMemoryOfWhatItViewsUnlessItIsACopy) {
  const std::string square = "\n%last = aten.mul.Tensor(self=%v, other=%h) -> f32[s0,3,4]";
  EXPECT_EQ(kept_after_linear("%v = aten.view.default(self=%h, size=[-1]) -> f32[s0,3,4]" + square),
            kTensor);
  EXPECT_EQ(kept_after_linear("%v = aten.to.dtype(self=%h, dtype=bf16) -> bf16[s0,3,4]" + square),
            kTensor + kTensor / 2);
  EXPECT_EQ(
      kept_after_linear("%t = aten.transpose.int(self=%h, dim0=1, dim1=2) -> f32[s0,4,3;12,1,4]\n"
                        "%c = aten.contiguous.default(self=%t) -> f32[s0,4,3]\n"
                        "%last = aten.mul.Tensor(self=%c, other=%c) -> f32[s0,4,3]"),
      kTensor);
  EXPECT_EQ(
      kept_after_linear("%t = aten.transpose.int(self=%h, dim0=1, dim1=2) -> f32[s0,4,3;12,1,4]\n"
                        "%c = aten.contiguous.default(self=%t) -> f32[s0,4,3]\n"
                        "%d = aten.mul.Tensor(self=%c, other=%c) -> f32[s0,4,3]\n"
                        "%last = aten.mul.Tensor(self=%h, other=%h) -> f32[s0,3,4]"),
      2 * kTensor);
}

TEST(SavedValues, CountsWhatOnlyAutogradKnows) {
  // Mean and deviation of 6 rows.
  EXPECT_EQ(kept_after_linear("%last = aten.layer_norm.default(input=%h, normalized_shape=[4]) -> "
                              "f32[s0,3,4]"),
            kTensor + 2 * 4 * 6);
  EXPECT_EQ(
      kept_after_linear("%last = aten.cross_entropy_loss.default(self=%h, target=%y) -> f32[]"),
      kTensor);
  // query, key and value are one tensor; the result; a sum for each of 6 rows.
  const std::string attention =
      "%last = aten.scaled_dot_product_attention.default(query=%h, key=%h, value=%h, dropout_p=";
  EXPECT_EQ(kept_after_linear(attention + "0.0) -> f32[s0,3,4]"), 2 * kTensor + 4 * 6);
  // With dropout the probabilities, [2,3,3], before and after it.
  EXPECT_EQ(kept_after_linear(attention + "0.1) -> f32[s0,3,4]"), 2 * kTensor + 2 * 4 * 18);
}

TEST(SavedValues, DropoutMakesATensorOnlyWhereItDraws) {
  const std::string kept = "%r = aten.relu.default(self=%h) -> f32[s0,3,4]\n";
  const std::string used =
      " -> f32[s0,3,4]\n%last = aten.linear.default(input=%d, weight=%w) -> f32[s0,3,4]";
  EXPECT_EQ(
      kept_after_linear(kept + "%d = aten.dropout.default(input=%r, p=0.5, train=true)" + used),
      2 * kTensor);
  EXPECT_EQ(
      kept_after_linear(kept + "%d = aten.dropout.default(input=%r, p=0.5, train=false)" + used),
      kTensor);
}

TEST(SavedValues, ARecurrentLayerKeepsItsGatesForEachOfItsLayers) {
  EXPECT_EQ(kept_after_linear("%last, %a, %b = aten.lstm.input(input=%h, hx={%h, %h}, params={%w}, "
                              "num_layers=2) -> f32[s0,3,4], f32[2,s0,4], f32[2,s0,4]"),
            2 * kTensor + 2 * 2 * 2 * 4 * 4 + 7 * 2 * kTensor);
}

TEST(SavedValues, WithoutAGradientNothingIsSaved) {
  EXPECT_EQ(kept_bytes("%r = aten.relu.default(self=%x) -> f32[s0,3,4]\n"
                       "%last = aten.linear.default(input=%x, weight=%w) -> f32[s0,3,4]"),
            0);
}

TEST(SavedValues, OfAnUnknownOperatorEverythingIsSaved) {
  EXPECT_EQ(kept_after_linear("%last = mine.strange.default(self=%h) -> f32[s0,3,4]"), 2 * kTensor);
}

}  // namespace
}  // namespace trireme
