// OperatorCall: one node of a Graph, ready to run through torch's dispatcher.
//
// All that does not change from call to call is decided when it is made: the operator, the order of
// its arguments, defaults, and constants. What changes are tensors and sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"

namespace trireme {

// In evaluation, dropout is off, batch_norm uses its running statistics, and attention drops
// nothing; the graph is the same.
enum class Mode : uint8_t { kTraining, kEvaluation };

// The registered operator of a node's name, such as "aten.linear.default".
[[nodiscard]] std::optional<c10::OperatorHandle> find_operator(std::string_view op);

class OperatorCall {
 public:
  // Errors: the operator is not in this libtorch, an argument does not fit its schema.
  static Result<OperatorCall> make(const Node& node, Mode mode);

  // By torch's tag: it may draw from torch's own generator.
  [[nodiscard]] bool draws_random_numbers() const;

  [[nodiscard]] const c10::FunctionSchema& schema() const { return op_.schema(); }

  // Fills `stack` with the arguments, in the schema's order; tensors by ValueId. REQUIRES: the
  // operands are defined.
  void fill(const std::vector<at::Tensor>& values, const SymbolValues& symbols,
            std::vector<c10::IValue>& stack) const;
  // Replaces the arguments on `stack` by the results. Throws what torch throws.
  void call(std::vector<c10::IValue>& stack) const { op_.callBoxed(stack); }

 private:
  // How one argument of the schema is filled.
  struct Slot {
    enum class Kind : uint8_t {
      kConstant,
      kTensor,
      kTensorList,
      kOptionalTensorList,
      kNumber,
      kIntegerList,
      kFloatList,
      kWrappedNumber
    };
    Kind kind = Kind::kConstant;
    c10::IValue constant;
    std::vector<std::optional<ValueId>> tensors;
    std::vector<SymExpr> expressions;
    bool is_float = false;  // kNumber: the schema asks for a float
  };
  static Result<Slot> make_slot(const c10::Argument& formal, const Argument& given);
  static Result<Slot> make_list_slot(const c10::Type& element, const Argument& given);
  static Result<Slot> make_number_slot(const c10::Type& type, const SymExpr& expression);

  explicit OperatorCall(c10::OperatorHandle op) : op_(std::move(op)) {}
  c10::OperatorHandle op_;
  std::vector<Slot> slots_;
};

}  // namespace trireme
