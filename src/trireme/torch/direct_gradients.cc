#include "trireme/torch/direct_gradients.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// A parameter as a backward meets it again. Undefined where there is none.
class Leaf {
 public:
  Leaf() = default;
  explicit Leaf(at::Tensor value) : value_(std::move(value)) {
    if (value_.defined()) version_ = value_._version();
  }
  [[nodiscard]] bool is_trained() const { return value_.defined() && value_.requires_grad(); }
  // As autograd checks what it saves.
  [[nodiscard]] const at::Tensor& value() const {
    TORCH_CHECK(value_._version() == version_,
                "a parameter was changed between its use in the forward pass and the backward");
    return value_;
  }
  [[nodiscard]] at::Tensor& gradient() const { return value_.mutable_grad(); }

 private:
  at::Tensor value_;
  uint32_t version_ = 0;
};

class LinearBackward : public torch::autograd::Node {
 public:
  LinearBackward(const at::Tensor& x, Leaf weight, Leaf bias)
      : x_(x, /*is_output=*/false), weight_(std::move(weight)), bias_(std::move(bias)) {}

  std::string name() const override { return "LinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(1);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    if (weight_.is_trained()) {
      const at::Tensor x = x_.unpack();
      weight_.gradient().addmm_(rows.t(), x.reshape({-1, x.size(-1)}));
    }
    if (bias_.is_trained()) bias_.gradient().add_(rows.sum(0));
    if (!task_should_compute_output(0)) return variable_list(1);
    const at::Tensor& weight = weight_.value();  // nothing else needs it as it was
    std::vector<int64_t> sizes = gradient.sizes().vec();
    sizes.back() = weight.size(1);
    return {at::mm(rows, weight).view(sizes)};
  }

  void release_variables() override { x_.reset_data(); }

 private:
  SavedVariable x_;
  Leaf weight_;
  Leaf bias_;
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
    weight_.gradient().index_add_(0, indices, rows);
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

int64_t integer_of(const Node& node, std::string_view name, int64_t otherwise) {
  const Argument* argument = find_argument(node, name);
  const auto* expression = argument == nullptr ? nullptr : std::get_if<SymExpr>(argument);
  if (expression == nullptr) return otherwise;
  const Result<int64_t> value = evaluate_integer(*expression, {});
  return value.ok() ? value.value() : otherwise;
}

bool flag_of(const Node& node, std::string_view name) {
  const Argument* argument = find_argument(node, name);
  const auto* flag = argument == nullptr ? nullptr : std::get_if<bool>(argument);
  return flag != nullptr && *flag;
}

at::Tensor linear(const DirectGradientCall::Operands& operands) {
  const at::Tensor& x = operands.input;
  const bool learns =
      operands.weight.requires_grad() || (operands.bias.defined() && operands.bias.requires_grad());
  const bool fits = x.dim() >= 1 && operands.weight.numel() > 0 &&
                    x.scalar_type() == operands.weight.scalar_type() &&
                    gathers_here(operands.weight) &&
                    (!operands.bias.defined() || gathers_here(operands.bias));
  if (!fits || (!learns && !x.requires_grad())) return at::Tensor();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result = at::linear(x, operands.weight, operands.bias);
  }
  const auto node =
      c10::make_intrusive<LinearBackward>(x, Leaf(operands.weight), Leaf(operands.bias));
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(result, node);
  return result;
}

at::Tensor embedding(const DirectGradientCall::Operands& operands) {
  if (!operands.weight.requires_grad() || !gathers_here(operands.weight)) return at::Tensor();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result = at::embedding(operands.weight, operands.input, operands.padding_idx);
  }
  const auto node = c10::make_intrusive<EmbeddingBackward>(operands.input, Leaf(operands.weight),
                                                           operands.padding_idx);
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace

struct DirectGradientCall::Operator {
  std::string_view name;
  std::string_view input;  // the names of its operands
  at::Tensor (*run)(const Operands& operands);
};

const DirectGradientCall::Operator* DirectGradientCall::find_operator(std::string_view name) {
  static constexpr std::array kOperators = {Operator{"linear", "input", linear},
                                            Operator{"embedding", "indices", embedding}};
  const auto* const found = std::ranges::find(kOperators, name, &Operator::name);
  return found == kOperators.end() ? nullptr : found;
}

std::optional<DirectGradientCall> DirectGradientCall::make(const Graph& graph,
                                                           const trireme::Node& node) {
  DirectGradientCall call;
  call.operator_ = node.op.starts_with("aten.") ? find_operator(base_name(node.op)) : nullptr;
  if (call.operator_ == nullptr) return std::nullopt;
  const auto operand = [&node](std::string_view name) {
    const Argument* argument = find_argument(node, name);
    const auto* id = argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
    return id == nullptr ? ValueId() : *id;
  };
  const auto is_parameter = [&graph](ValueId id) {
    return std::ranges::any_of(graph.inputs, [id](const GraphInput& input) {
      return input.value == id && input.kind == GraphInput::Kind::kParameter;
    });
  };
  call.input_ = operand(call.operator_->input);
  call.weight_ = operand("weight");
  call.bias_ = operand("bias");
  call.padding_idx_ = integer_of(node, "padding_idx", -1);
  const bool is_plain = !flag_of(node, "sparse") && !flag_of(node, "scale_grad_by_freq");
  if (!is_plain || !call.input_.is_valid() || !is_parameter(call.weight_)) return std::nullopt;
  if (call.bias_.is_valid() && !is_parameter(call.bias_)) return std::nullopt;
  return call;
}

at::Tensor DirectGradientCall::run(const std::vector<at::Tensor>& values) const {
  if (!at::GradMode::is_enabled() || at::autocast::is_autocast_enabled(at::kCPU)) {
    return at::Tensor();
  }
  return operator_->run({.input = values[input_.value],
                         .weight = values[weight_.value],
                         .bias = bias_.is_valid() ? values[bias_.value] : at::Tensor(),
                         .padding_idx = padding_idx_});
}

}  // namespace trireme
