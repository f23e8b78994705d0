// DirectGradientCall: an operator whose backward adds the gradients of its parameters straight into
// their accumulators.
//
// Autograd makes such a gradient in memory of its own, and adds it in a second pass; a matrix
// product can add as it goes, and an embedding touches only the rows that were read. The numbers
// are those of autograd but for the rounding of that sum. One row of `kOperators` an operator.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/graph/graph.h"

namespace trireme {

class DirectGradientCall {
 public:
  struct Operands {
    at::Tensor input;
    at::Tensor weight;
    at::Tensor bias;           // undefined when there is none
    int64_t padding_idx = -1;  // of an embedding
  };

  // nullopt when the operator has no row, or its weight is not a parameter itself.
  static std::optional<DirectGradientCall> make(const Graph& graph, const Node& node);

  // The result, part of the autograd graph; undefined when this time the ordinary call is needed:
  // gradients are off, autocast is on, or a parameter gathers its gradient elsewhere.
  [[nodiscard]] at::Tensor run(const std::vector<at::Tensor>& values) const;

 private:
  struct Operator;
  static const Operator* find_operator(std::string_view name);

  const Operator* operator_ = nullptr;
  ValueId input_;
  ValueId weight_;
  ValueId bias_;  // invalid when there is none
  int64_t padding_idx_ = -1;
};

}  // namespace trireme
