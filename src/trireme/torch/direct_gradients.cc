#include "trireme/torch/direct_gradients.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "trireme/graph/op_rules.h"
#include "trireme/torch/final_gradients.h"

namespace trireme {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// A parameter as a backward meets it again. Undefined where there is none.
class Leaf {
 public:
  Leaf() = default;
  explicit Leaf(const DirectGradientCall::Parameter& parameter)
      : value_(parameter.value), input_(parameter.input) {
    if (value_.defined()) version_ = value_._version();
  }
  [[nodiscard]] bool is_trained() const { return value_.defined() && value_.requires_grad(); }
  // As autograd checks what it saves.
  [[nodiscard]] const at::Tensor& value() const {
    TORCH_CHECK(value_._version() == version_,
                "a parameter was changed between its use in the forward pass and the backward");
    return value_;
  }
  // Adds to the sum of its gradients.
  template <typename Addition>
  void add(Addition addition) const {
    addition(value_.mutable_grad());
    if (GradientShare* share = GradientShare::current()) share->added(input_);
  }

 private:
  at::Tensor value_;
  int32_t input_ = -1;
  uint32_t version_ = 0;
};

template <typename Addition>
void now_or_later(Addition addition) {
  if (DeferredGradients* later = DeferredGradients::current()) {
    later->push(std::move(addition));
  } else {
    addition();
  }
}

class LinearBackward : public torch::autograd::Node {
 public:
  // weight: [out, in], or [in, out] where it is transposed.
  LinearBackward(const at::Tensor& x, Leaf weight, Leaf bias, bool is_transposed)
      : x_(x, /*is_output=*/false),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        is_transposed_(is_transposed) {}

  std::string name() const override { return "LinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(1);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    now_or_later([weight = weight_, bias = bias_, rows,
                  x = weight_.is_trained() ? x_.unpack() : at::Tensor(),
                  is_transposed = is_transposed_] {
      if (weight.is_trained()) {
        const at::Tensor x_rows = x.reshape({-1, x.size(-1)});
        weight.add([&](at::Tensor& sum) {
          is_transposed ? sum.addmm_(x_rows.t(), rows) : sum.addmm_(rows.t(), x_rows);
        });
      }
      if (bias.is_trained()) bias.add([&](at::Tensor& sum) { sum.add_(rows.sum(0)); });
    });
    if (!task_should_compute_output(0)) return variable_list(1);
    const at::Tensor& weight = weight_.value();  // nothing else needs it as it was
    std::vector<int64_t> sizes = gradient.sizes().vec();
    sizes.back() = weight.size(is_transposed_ ? 0 : 1);
    return {at::mm(rows, is_transposed_ ? weight.t() : weight).view(sizes)};
  }

  void release_variables() override { x_.reset_data(); }

 private:
  SavedVariable x_;
  Leaf weight_;
  Leaf bias_;
  bool is_transposed_;
};

class ConvolutionBackward : public torch::autograd::Node {
 public:
  ConvolutionBackward(const at::Tensor& x, Leaf weight, Leaf bias,
                      DirectGradientCall::Numbers numbers)
      : x_(x, /*is_output=*/false),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        numbers_(std::move(numbers)) {}

  std::string name() const override { return "ConvolutionBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor gradient = gradients[0];
    if (!gradient.defined()) return variable_list(1);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor x = x_.unpack();
    const at::Tensor weight = weight_.value();
    now_or_later([=, leaf = weight_, bias = bias_, numbers = numbers_] {
      const auto made =
          backward(gradient, x, weight, numbers, {false, leaf.is_trained(), bias.is_trained()});
      if (leaf.is_trained()) leaf.add([&](at::Tensor& sum) { sum.add_(std::get<1>(made)); });
      if (bias.is_trained()) bias.add([&](at::Tensor& sum) { sum.add_(std::get<2>(made)); });
    });
    if (!task_should_compute_output(0)) return variable_list(1);
    return {std::get<0>(backward(gradient, x, weight, numbers_, {true, false, false}))};
  }

  void release_variables() override { x_.reset_data(); }

 private:
  static std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
      const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
      const DirectGradientCall::Numbers& numbers, std::array<bool, 3> wanted) {
    const std::vector<int64_t> output_padding(numbers.stride.size(), 0);
    return at::convolution_backward(gradient, x, weight, at::IntArrayRef({weight.size(0)}),
                                    numbers.stride, numbers.padding, numbers.dilation,
                                    /*transposed=*/false, output_padding, numbers.groups, wanted);
  }

  SavedVariable x_;
  Leaf weight_;
  Leaf bias_;
  DirectGradientCall::Numbers numbers_;
};

class EmbeddingBackward : public torch::autograd::Node {
 public:
  EmbeddingBackward(const at::Tensor& indices, Leaf weight, int64_t padding_idx)
      : indices_(indices, /*is_output=*/false),
        weight_(std::move(weight)),
        padding_idx_(padding_idx) {}

  std::string name() const override { return "EmbeddingBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {};
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor indices = indices_.unpack().reshape({-1});
    at::Tensor rows = gradients[0].reshape({-1, gradients[0].size(-1)});
    // The padding row never learns.
    if (padding_idx_ >= 0) rows = rows.masked_fill(indices.eq(padding_idx_).unsqueeze(1), 0);
    now_or_later([weight = weight_, indices, rows] {
      weight.add([&](at::Tensor& sum) { sum.index_add_(0, indices, rows); });
    });
    return {};
  }

  void release_variables() override { indices_.reset_data(); }

 private:
  SavedVariable indices_;
  Leaf weight_;
  int64_t padding_idx_;
};

// Its accumulator is where autograd would add the gradient.
bool gathers_here(const at::Tensor& parameter) {
  return !parameter.requires_grad() ||
         (parameter.grad().defined() && parameter.grad().scalar_type() == parameter.scalar_type());
}

// nullopt: it is no number, or one that the data decides.
std::optional<int64_t> integer(const SymExpr& expression) {
  const Result<int64_t> value = evaluate_integer(expression, {});
  return value.ok() ? std::optional(value.value()) : std::nullopt;
}

int64_t integer_of(const Node& node, std::string_view name, int64_t otherwise) {
  const Argument* argument = find_argument(node, name);
  const auto* expression = argument == nullptr ? nullptr : std::get_if<SymExpr>(argument);
  return expression == nullptr ? otherwise : integer(*expression).value_or(otherwise);
}

// `count` numbers, where one stands for all; none where the data decides one.
std::vector<int64_t> integers_of(const Node& node, std::string_view name, size_t count,
                                 int64_t otherwise) {
  const Argument* argument = find_argument(node, name);
  const auto* list = argument == nullptr ? nullptr : std::get_if<std::vector<SymExpr>>(argument);
  if (list == nullptr) return std::vector<int64_t>(count, otherwise);
  std::vector<int64_t> numbers;
  for (const SymExpr& expression : *list) {
    const std::optional<int64_t> number = integer(expression);
    if (!number.has_value()) return {};
    numbers.push_back(*number);
  }
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  return numbers;
}

bool flag_of(const Node& node, std::string_view name) {
  const Argument* argument = find_argument(node, name);
  const auto* flag = argument == nullptr ? nullptr : std::get_if<bool>(argument);
  return flag != nullptr && *flag;
}

// Of an operator with a weight and perhaps a bias.
bool fits(const DirectGradientCall::Operands& operands) {
  const at::Tensor& x = operands.input;
  const at::Tensor& weight = operands.weight.value;
  const at::Tensor& bias = operands.bias.value;
  const bool learns =
      x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad());
  return learns && x.dim() >= 1 && weight.numel() > 0 && x.scalar_type() == weight.scalar_type() &&
         gathers_here(weight) && (!bias.defined() || gathers_here(bias));
}

at::Tensor with_history(at::Tensor result, const at::Tensor& x,
                        const c10::intrusive_ptr<torch::autograd::Node>& node) {
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(result, node);
  return result;
}

at::Tensor linear(const DirectGradientCall::Operands& operands) {
  if (!fits(operands)) return at::Tensor();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result = at::linear(operands.input, operands.weight.value, operands.bias.value);
  }
  return with_history(
      std::move(result), operands.input,
      c10::make_intrusive<LinearBackward>(operands.input, Leaf(operands.weight),
                                          Leaf(operands.bias), /*is_transposed=*/false));
}

// bias + x weight, with x of two dims.
at::Tensor addmm(const DirectGradientCall::Operands& operands) {
  if (!fits(operands) || operands.bias.value.dim() != 1) return at::Tensor();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result = at::addmm(operands.bias.value, operands.input, operands.weight.value);
  }
  return with_history(
      std::move(result), operands.input,
      c10::make_intrusive<LinearBackward>(operands.input, Leaf(operands.weight),
                                          Leaf(operands.bias), /*is_transposed=*/true));
}

at::Tensor convolution(const DirectGradientCall::Operands& operands) {
  const DirectGradientCall::Numbers& numbers = operands.numbers;
  const bool has_batch = operands.input.dim() == operands.weight.value.dim();
  if (!fits(operands) || !has_batch) return at::Tensor();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const std::vector<int64_t> output_padding(numbers.stride.size(), 0);
    result = at::convolution(operands.input, operands.weight.value, operands.bias.value,
                             numbers.stride, numbers.padding, numbers.dilation,
                             /*transposed=*/false, output_padding, numbers.groups);
  }
  return with_history(std::move(result), operands.input,
                      c10::make_intrusive<ConvolutionBackward>(
                          operands.input, Leaf(operands.weight), Leaf(operands.bias), numbers));
}

at::Tensor embedding(const DirectGradientCall::Operands& operands) {
  const at::Tensor& weight = operands.weight.value;
  if (!weight.requires_grad() || !gathers_here(weight)) return at::Tensor();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result = at::embedding(weight, operands.input, operands.numbers.padding_idx);
  }
  const auto node = c10::make_intrusive<EmbeddingBackward>(operands.input, Leaf(operands.weight),
                                                           operands.numbers.padding_idx);
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace

struct DirectGradientCall::Operator {
  std::string_view name;
  // The names of its operands.
  std::string_view input;
  std::string_view weight;
  std::string_view bias;
  size_t num_spatial_dims;  // of a convolution
  bool is_only_to_defer;    // without that the ordinary call is as good
  at::Tensor (*run)(const Operands& operands);
};

namespace {

thread_local DeferredGradients* deferred_here = nullptr;

}  // namespace

DeferredGradients::Scope::Scope(DeferredGradients* queue)
    : before_(std::exchange(deferred_here, queue)) {}
DeferredGradients::Scope::~Scope() { deferred_here = before_; }

DeferredGradients* DeferredGradients::current() { return deferred_here; }

void DeferredGradients::run() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const std::function<void()>& addition : additions_) addition();
  additions_.clear();
}

const DirectGradientCall::Operator* DirectGradientCall::find_operator(std::string_view name) {
  static constexpr std::array kOperators = {
      Operator{"linear.default", "input", "weight", "bias", 0, false, linear},
      Operator{"embedding.default", "indices", "weight", "", 0, false, embedding},
      Operator{"addmm.default", "mat1", "mat2", "self", 0, true, addmm},
      Operator{"conv1d.default", "input", "weight", "bias", 1, true, convolution},
      Operator{"conv2d.default", "input", "weight", "bias", 2, true, convolution},
      Operator{"conv3d.default", "input", "weight", "bias", 3, true, convolution}};
  const auto* const found = std::ranges::find(kOperators, name, &Operator::name);
  return found == kOperators.end() ? nullptr : found;
}

std::optional<DirectGradientCall> DirectGradientCall::make(const Graph& graph,
                                                           const trireme::Node& node) {
  constexpr std::string_view kAten = "aten.";
  DirectGradientCall call;
  call.operator_ = node.op.starts_with(kAten)
                       ? find_operator(std::string_view(node.op).substr(kAten.size()))
                       : nullptr;
  if (call.operator_ == nullptr) return std::nullopt;
  const auto operand = [&node](std::string_view name) {
    const Argument* argument = find_argument(node, name);
    const auto* id = argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
    return id == nullptr ? ValueId() : *id;
  };
  const auto parameter_of = [&graph](ValueId id) {
    const auto found = std::ranges::find_if(graph.inputs, [id](const GraphInput& input) {
      return input.value == id && input.kind == GraphInput::Kind::kParameter;
    });
    return found == graph.inputs.end() ? -1 : static_cast<int32_t>(found - graph.inputs.begin());
  };
  call.input_ = operand(call.operator_->input);
  call.weight_ = operand(call.operator_->weight);
  call.bias_ = operand(call.operator_->bias);
  const size_t num_dims = call.operator_->num_spatial_dims;
  call.numbers_ = {.padding_idx = integer_of(node, "padding_idx", -1),
                   .stride = integers_of(node, "stride", num_dims, 1),
                   .padding = integers_of(node, "padding", num_dims, 0),
                   .dilation = integers_of(node, "dilation", num_dims, 1),
                   .groups = integer_of(node, "groups", 1)};
  const bool is_plain =
      !flag_of(node, "sparse") && !flag_of(node, "scale_grad_by_freq") &&
      find_argument(node, "alpha") == nullptr && find_argument(node, "beta") == nullptr &&
      call.numbers_.stride.size() == num_dims && call.numbers_.padding.size() == num_dims &&
      call.numbers_.dilation.size() == num_dims;
  call.weight_input_ = parameter_of(call.weight_);
  call.bias_input_ = call.bias_.is_valid() ? parameter_of(call.bias_) : -1;
  if (!is_plain || !call.input_.is_valid() || call.weight_input_ < 0) return std::nullopt;
  if (call.bias_.is_valid() && call.bias_input_ < 0) return std::nullopt;
  return call;
}

at::Tensor DirectGradientCall::run(const std::vector<at::Tensor>& values, bool may_defer) const {
  if (!at::GradMode::is_enabled() || at::autocast::is_autocast_enabled(at::kCPU) ||
      (operator_->is_only_to_defer && !may_defer)) {
    return at::Tensor();
  }
  return operator_->run(
      {.input = values[input_.value],
       .weight = {values[weight_.value], weight_input_},
       .bias = {bias_.is_valid() ? values[bias_.value] : at::Tensor(), bias_input_},
       .numbers = numbers_});
}

std::vector<int32_t> DirectGradientCall::parameters() const {
  return bias_.is_valid() ? std::vector<int32_t>{weight_input_, bias_input_}
                          : std::vector<int32_t>{weight_input_};
}

}  // namespace trireme
