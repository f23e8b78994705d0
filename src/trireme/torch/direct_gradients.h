// DirectGradientCall: an operator whose backward adds the gradients of its parameters straight into
// their accumulators.
//
// Autograd makes such a gradient in memory of its own, and adds it in a second pass; a matrix
// product can add as it goes, and an embedding touches only the rows that were read. The numbers
// are those of autograd but for the rounding of that sum. One row of `kOperators` an operator.
//
// Such an operator can also leave the gradients of its parameters for later, when only that of its
// input is urgent: the I and W of zero-bubble schedules (Qi et al., ICLR 2024).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/graph/graph.h"

namespace trireme {

// Gradients of parameters that a backward has left for later.
class DeferredGradients {
 public:
  // While it lives, backwards of this thread leave them in `queue`, unless that is null.
  class Scope {
   public:
    explicit Scope(DeferredGradients* queue);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredGradients* before_;
  };

  // That of the thread's scope; null: none.
  [[nodiscard]] static DeferredGradients* current();
  void push(std::function<void()> addition) { additions_.push_back(std::move(addition)); }
  // Adds all of them to their accumulators, in the order in which the backward came to them.
  void run();

 private:
  std::vector<std::function<void()>> additions_;
};

class DirectGradientCall {
 public:
  struct Numbers {
    int64_t padding_idx = -1;  // of an embedding
    // Of a convolution.
    std::vector<int64_t> stride;
    std::vector<int64_t> padding;
    std::vector<int64_t> dilation;
    int64_t groups = 1;
  };
  struct Parameter {
    at::Tensor value;    // undefined when there is none
    int32_t input = -1;  // index into Graph::inputs
  };
  struct Operands {
    at::Tensor input;
    Parameter weight;
    Parameter bias;
    const Numbers& numbers;
  };

  // nullopt when the operator has no row, or its weight is not a parameter itself.
  static std::optional<DirectGradientCall> make(const Graph& graph, const Node& node);

  // The result, part of the autograd graph; undefined when this time the ordinary call is needed:
  // gradients are off, autocast is on, a parameter gathers its gradient elsewhere, or the operator
  // gains nothing by it unless gradients are deferred, which `may_defer` says.
  [[nodiscard]] at::Tensor run(const std::vector<at::Tensor>& values, bool may_defer = false) const;

  // The parameters that its backward adds to itself, as indices into Graph::inputs.
  [[nodiscard]] std::vector<int32_t> parameters() const;
  // What autograd passes a gradient to.
  [[nodiscard]] ValueId input() const { return input_; }

 private:
  struct Operator;
  static const Operator* find_operator(std::string_view name);

  const Operator* operator_ = nullptr;
  ValueId input_;
  ValueId weight_;
  ValueId bias_;  // invalid when there is none
  int32_t weight_input_ = -1;
  int32_t bias_input_ = -1;
  Numbers numbers_;
};

}  // namespace trireme
