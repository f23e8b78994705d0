#include "trireme/torch/direct_gradients.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/graph/graph.h"

namespace trireme {
namespace {

constexpr auto kLinear = R"(parameter %w "w" f64[5,4] grad
parameter %b "b" f64[5] grad
input %x "x" f64[s0,4]
%y = aten.linear.default(input=%x, weight=%w, bias=%b) -> f64[s0,5]
%loss = aten.sum.default(self=%y) -> f64[]
return %loss
)";

constexpr auto kEmbedding = R"(parameter %w "w" f64[7,3] grad
input %i "i" i64[s0]
%y = aten.embedding.default(weight=%w, indices=%i, padding_idx=2) -> f64[s0,3]
%loss = aten.sum.default(self=%y) -> f64[]
return %loss
)";

at::Tensor leaf(const at::Tensor& value, bool learns) {
  at::Tensor copy = value.clone().set_requires_grad(learns);
  if (learns) copy.mutable_grad() = at::zeros_like(value);
  return copy;
}

void run_backward(const at::Tensor& result, const at::Tensor& gradient) {
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::impl::gradient_edge(result)}, {gradient}, false, false, true, {});
}

void expect_equal(const at::Tensor& ours, const at::Tensor& theirs) {
  ASSERT_EQ(ours.defined(), theirs.defined());
  if (!ours.defined()) return;
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-12, 1e-12)) << ours << theirs;
}

struct LinearCase {
  std::vector<int64_t> sizes;  // of x
  bool x_learns = true;
  bool weight_learns = true;
  bool has_bias = true;
};

class DirectLinear : public testing::TestWithParam<LinearCase> {};

TEST_P(DirectLinear, HasTheGradientsOfAutograd) {
  const LinearCase& given = GetParam();
  std::string text = kLinear;
  if (!given.has_bias) text.erase(text.find(", bias=%b"), std::string(", bias=%b").size());
  const Result<Graph> graph = parse_graph(text);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const auto call = DirectGradientCall::make(graph.value(), graph.value().nodes[0]);
  ASSERT_TRUE(call.has_value());
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor x = at::randn(given.sizes, options);
  const at::Tensor w = at::randn({5, 4}, options);
  const at::Tensor b = at::randn({5}, options);
  const at::Tensor x1 = x.clone().set_requires_grad(given.x_learns);
  const at::Tensor x2 = x.clone().set_requires_grad(given.x_learns);
  const std::vector<at::Tensor> ours = {leaf(w, given.weight_learns), leaf(b, given.has_bias), x1};
  const std::vector<at::Tensor> theirs = {leaf(w, given.weight_learns), leaf(b, given.has_bias),
                                          x2};
  for (int pass = 0; pass < 2; ++pass) {  // gradients add up
    const at::Tensor y1 = call->run(ours);
    const at::Tensor y2 =
        at::linear(x2, theirs[0], given.has_bias ? theirs[1] : std::optional<at::Tensor>());
    ASSERT_TRUE(y1.defined());
    EXPECT_TRUE(at::equal(y1, y2));
    const at::Tensor gradient = at::randn(y2.sizes(), options);
    run_backward(y1, gradient);
    run_backward(y2, gradient);
  }
  for (size_t i = 0; i < ours.size(); ++i) expect_equal(ours[i].grad(), theirs[i].grad());
}

INSTANTIATE_TEST_SUITE_P(Shapes, DirectLinear,
                         testing::Values(LinearCase{.sizes = {3, 4}}, LinearCase{.sizes = {4}},
                                         LinearCase{.sizes = {2, 3, 4}},
                                         LinearCase{.sizes = {0, 4}},
                                         LinearCase{.sizes = {3, 4}, .x_learns = false},
                                         LinearCase{.sizes = {3, 4}, .weight_learns = false},
                                         LinearCase{.sizes = {2, 3, 4}, .has_bias = false}));

TEST(DirectGradients, AnEmbeddingTouchesTheRowsThatWereReadAndNotThePadding) {
  const Result<Graph> graph = parse_graph(kEmbedding);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const auto call = DirectGradientCall::make(graph.value(), graph.value().nodes[0]);
  ASSERT_TRUE(call.has_value());
  const at::Tensor w = at::randn({7, 3}, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor indices = at::tensor({1, 2, 6, 1, 0}, at::kLong);
  const at::Tensor ours = leaf(w, true);
  const at::Tensor theirs = leaf(w, true);
  const at::Tensor y = call->run({ours, indices});
  const at::Tensor expected = at::embedding(theirs, indices, 2);
  EXPECT_TRUE(at::equal(y, expected));
  const at::Tensor gradient = at::randn_like(expected);
  run_backward(y, gradient);
  run_backward(expected, gradient);
  expect_equal(ours.grad(), theirs.grad());
  EXPECT_EQ(ours.grad()[2].abs().sum().item<double>(), 0);
}

TEST(DirectGradients, TheOrdinaryCallIsLeftWhatAutogradDoesOtherwise) {
  const Result<Graph> graph = parse_graph(kLinear);
  ASSERT_TRUE(graph.ok());
  const auto call = DirectGradientCall::make(graph.value(), graph.value().nodes[0]);
  ASSERT_TRUE(call.has_value());
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor x = at::randn({3, 4}, options);
  const at::Tensor b = leaf(at::randn({5}, options), true);
  const at::Tensor elsewhere =
      at::randn({5, 4}, options).set_requires_grad(true);  // no accumulator
  EXPECT_FALSE(call->run({elsewhere, b, x}).defined());
  const at::Tensor frozen = at::randn({5, 4}, options);
  EXPECT_FALSE(call->run({frozen, at::randn({5}, options), x}).defined());
  EXPECT_FALSE(call->run({frozen.to(at::kFloat), b, x}).defined());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(call->run({leaf(frozen, true), b, x}).defined());
}

TEST(DirectGradients, AWeightThatChangesIsAnErrorWhereTheBackwardNeedsItsValues) {
  const Result<Graph> graph = parse_graph(kLinear);
  ASSERT_TRUE(graph.ok());
  const auto call = DirectGradientCall::make(graph.value(), graph.value().nodes[0]);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  for (const bool x_learns : {false, true}) {
    const std::vector<at::Tensor> values = {leaf(at::randn({5, 4}, options), true),
                                            leaf(at::randn({5}, options), true),
                                            leaf(at::randn({3, 4}, options), x_learns)};
    const at::Tensor y = call->run(values);
    {
      const at::NoGradGuard no_grad;
      at::Tensor weight = values[0];
      weight.add_(1);
    }
    if (x_learns) {
      EXPECT_THROW(run_backward(y, at::ones_like(y)), c10::Error);
    } else {
      EXPECT_NO_THROW(run_backward(y, at::ones_like(y)));
    }
  }
}

}  // namespace
}  // namespace trireme
