// Weight gradients that a backward leaves for later: those of autograd, and nothing before.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/graph/graph.h"
#include "trireme/torch/direct_gradients.h"
#include "trireme/torch/operator_call.h"

namespace trireme {
namespace {

struct DeferredCase {
  std::string name;
  std::string call;
  std::vector<int64_t> weight;
  std::vector<int64_t> bias;
  std::vector<int64_t> x;
};
void PrintTo(const DeferredCase& given, std::ostream* out) { *out << given.name; }

class Deferred : public testing::TestWithParam<DeferredCase> {
 protected:
  void SetUp() override {
    const DeferredCase& given = GetParam();
    const auto sizes = [](const std::vector<int64_t>& dims) {
      std::string text;
      for (const int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
      return text;
    };
    const std::string text = "parameter %w \"w\" f64[" + sizes(given.weight) + "] grad\n" +
                             "parameter %b \"b\" f64[" + sizes(given.bias) + "] grad\n" +
                             "input %x \"x\" f64[" + sizes(given.x) + "]\n%y = " + given.call +
                             " -> f64[s0]\n%loss = aten.sum.default(self=%y) -> f64[]\n" +
                             "return %loss\n";
    Result<Graph> parsed = parse_graph(text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    graph_ = std::move(parsed).value();
    const auto options = at::TensorOptions().dtype(at::kDouble);
    for (const std::vector<int64_t>& dims : {given.weight, given.bias, given.x}) {
      values_.push_back(at::randn(dims, options).set_requires_grad(true));
      values_.back().mutable_grad() = at::zeros_like(values_.back());
    }
    values_.resize(graph_.values.size());
  }

  [[nodiscard]] std::vector<at::Tensor> gradients() const {
    return {values_[0].grad().clone(), values_[1].grad().clone(), values_[2].grad().clone()};
  }
  void clear_gradients() {
    for (int i = 0; i < 3; ++i) values_[i].mutable_grad().zero_();
  }
  static void run_backward(const at::Tensor& y, const at::Tensor& gradient) {
    torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(y)},
                                                          {gradient}, false, false, true, {});
  }

  Graph graph_;
  std::vector<at::Tensor> values_;  // w, b, x
};

TEST_P(Deferred, WeightsLearnWhenTheQueueRunsAndTheInputAtOnce) {
  // As torch does it.
  Result<OperatorCall> call = OperatorCall::make(graph_.nodes[0], Mode::kTraining);
  ASSERT_TRUE(call.ok()) << call.error().message;
  std::vector<c10::IValue> stack;
  call.value().fill(values_, {}, stack);
  call.value().call(stack);
  const at::Tensor expected = stack[0].toTensor();
  const at::Tensor gradient = at::randn_like(expected);
  run_backward(expected, gradient);
  const std::vector<at::Tensor> wanted = gradients();
  clear_gradients();

  const auto direct = DirectGradientCall::make(graph_, graph_.nodes[0]);
  ASSERT_TRUE(direct.has_value());
  const at::Tensor y = direct->run(values_, /*may_defer=*/true);
  ASSERT_TRUE(y.defined());
  EXPECT_TRUE(at::equal(y, expected));
  DeferredGradients queue;
  {
    const DeferredGradients::Scope scope(&queue);
    run_backward(y, gradient);
  }
  EXPECT_EQ(values_[0].grad().abs().sum().item<double>(), 0);
  EXPECT_EQ(values_[1].grad().abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::allclose(values_[2].grad(), wanted[2], 1e-12, 1e-12));
  queue.run();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(values_[i].grad(), wanted[i], 1e-12, 1e-12)) << i;
  }
  // Once only.
  queue.run();
  EXPECT_TRUE(at::allclose(values_[0].grad(), wanted[0], 1e-12, 1e-12));

  // Without a queue, at once.
  clear_gradients();
  run_backward(direct->run(values_, /*may_defer=*/true), gradient);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(values_[i].grad(), wanted[i], 1e-12, 1e-12)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operators, Deferred,
    testing::Values(
        DeferredCase{
            "linear", "aten.linear.default(input=%x, weight=%w, bias=%b)", {5, 4}, {5}, {2, 3, 4}},
        DeferredCase{"addmm", "aten.addmm.default(self=%b, mat1=%x, mat2=%w)", {4, 5}, {5}, {3, 4}},
        DeferredCase{"conv1d",
                     "aten.conv1d.default(input=%x, weight=%w, bias=%b, stride=[2])",
                     {6, 4, 3},
                     {6},
                     {2, 4, 9}},
        DeferredCase{"conv2d",
                     "aten.conv2d.default(input=%x, weight=%w, bias=%b, stride=[2, 1], "
                     "padding=[1], dilation=[1, 2], groups=2)",
                     {6, 2, 3, 3},
                     {6},
                     {2, 4, 8, 7}},
        DeferredCase{"conv3d",
                     "aten.conv3d.default(input=%x, weight=%w, bias=%b, padding=[0, 1, 0])",
                     {3, 2, 2, 3, 2},
                     {3},
                     {2, 2, 4, 5, 4}}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace trireme
