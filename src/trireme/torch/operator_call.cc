#include "trireme/torch/operator_call.h"

#include <fmt/format.h>

#include <ATen/ScalarOps.h>
#include <ATen/core/enum_tag.h>

#include "trireme/graph/op_rules.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/tensors.h"

namespace trireme {
namespace {

using c10::TypeKind;

bool is_number_kind(TypeKind kind) {
  return kind == TypeKind::IntType || kind == TypeKind::SymIntType || kind == TypeKind::FloatType ||
         kind == TypeKind::SymFloatType || kind == TypeKind::NumberType ||
         kind == TypeKind::BoolType;
}

bool is_float_kind(TypeKind kind) {
  return kind == TypeKind::FloatType || kind == TypeKind::SymFloatType;
}

// Symbols make a number change from call to call.
bool is_constant(const SymExpr& expression) {
  std::set<std::string> symbols;
  collect_symbols(expression, symbols);
  return symbols.empty();
}

c10::IValue to_ivalue(const SymValue& value, bool is_float) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return is_float ? c10::IValue(static_cast<double>(*integer)) : c10::IValue(*integer);
  }
  return std::get<double>(value);
}

SymValue evaluate_or_throw(const SymExpr& expression, const SymbolValues& symbols) {
  Result<SymValue> value = evaluate(expression, symbols);
  if (!value.ok()) throw std::runtime_error(value.error().message);
  return value.value();
}

at::Tensor wrapped_number(const SymValue& value) {
  at::Tensor tensor = std::holds_alternative<int64_t>(value)
                          ? at::scalar_to_tensor(std::get<int64_t>(value))
                          : at::scalar_to_tensor(std::get<double>(value));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Error misfit(const c10::Argument& formal) {
  return Error{fmt::format("argument {} does not fit its type {}", formal.name(),
                           formal.real_type()->str())};
}

// What evaluation changes of a node's arguments: (operator, argument) -> value.
std::optional<c10::IValue> evaluation_override(std::string_view op, const std::string& argument) {
  const std::string_view name = base_name(op);
  const bool turns_off =
      (argument == "train" && (name.find("dropout") != std::string_view::npos || name == "lstm" ||
                               name == "gru" || name == "rnn_tanh" || name == "rnn_relu")) ||
      (argument == "training" && (name == "batch_norm" || name.starts_with("rrelu"))) ||
      (argument == "use_input_stats" && name == "instance_norm");
  if (turns_off) return c10::IValue(false);
  if (argument == "dropout_p" && name == "scaled_dot_product_attention") return c10::IValue(0.0);
  return std::nullopt;
}

}  // namespace

Result<OperatorCall::Slot> OperatorCall::make_number_slot(const c10::Type& type,
                                                          const SymExpr& expression) {
  Slot slot;
  slot.is_float = is_float_kind(type.kind());
  if (type.kind() == TypeKind::BoolType) {
    TRIREME_TRY(int64_t value, evaluate_integer(expression, {}));
    slot.constant = c10::IValue(value != 0);
    return slot;
  }
  if (is_constant(expression)) {
    TRIREME_TRY(SymValue value, evaluate(expression, {}));
    slot.constant = to_ivalue(value, slot.is_float);
    return slot;
  }
  slot.kind = Slot::Kind::kNumber;
  slot.expressions = {expression};
  return slot;
}

Result<OperatorCall::Slot> OperatorCall::make_list_slot(const c10::Type& element,
                                                        const Argument& given) {
  Slot slot;
  if (const auto* tensors = std::get_if<std::vector<std::optional<ValueId>>>(&given)) {
    const bool is_optional = element.kind() == TypeKind::OptionalType;
    if (!is_optional && element.kind() != TypeKind::TensorType) return Error{"a list of tensors"};
    slot.kind = is_optional ? Slot::Kind::kOptionalTensorList : Slot::Kind::kTensorList;
    slot.tensors = *tensors;
    for (const std::optional<ValueId>& id : *tensors) {
      if (!is_optional && !id.has_value()) return Error{"None in a list of tensors"};
    }
    return slot;
  }
  if (const auto* bools = std::get_if<std::vector<bool>>(&given)) {
    if (element.kind() != TypeKind::BoolType) return Error{"a list of bools"};
    c10::List<bool> list;
    for (const bool value : *bools) list.push_back(value);
    slot.constant = list;
    return slot;
  }
  std::vector<SymExpr> expressions;
  if (const auto* list = std::get_if<std::vector<SymExpr>>(&given)) expressions = *list;
  if (const auto* one = std::get_if<SymExpr>(&given)) expressions = {*one};
  if (expressions.empty() && element.kind() == TypeKind::TensorType) {
    slot.kind = Slot::Kind::kTensorList;
    return slot;
  }
  if (!is_number_kind(element.kind())) return Error{"a list of numbers"};
  slot.kind = is_float_kind(element.kind()) ? Slot::Kind::kFloatList : Slot::Kind::kIntegerList;
  slot.expressions = std::move(expressions);
  return slot;
}

Result<OperatorCall::Slot> OperatorCall::make_slot(const c10::Argument& formal,
                                                   const Argument& given) {
  c10::TypePtr type = formal.real_type();
  const bool is_optional = type->kind() == TypeKind::OptionalType;
  if (is_optional) type = type->castRaw<c10::OptionalType>()->getElementType();
  Slot slot;
  if (std::holds_alternative<std::monostate>(given)) {
    if (is_optional) return slot;  // None
    if (type->kind() == TypeKind::TensorType) {
      slot.constant = at::Tensor();
      return slot;
    }
    return misfit(formal);
  }
  if (type->kind() == TypeKind::ListType) {
    Result<Slot> list = make_list_slot(*type->castRaw<c10::ListType>()->getElementType(), given);
    return list.ok() ? list : Result<Slot>(misfit(formal));
  }
  if (const auto* id = std::get_if<ValueId>(&given)) {
    if (type->kind() != TypeKind::TensorType) return misfit(formal);
    slot.kind = Slot::Kind::kTensor;
    slot.tensors = {*id};
    return slot;
  }
  if (const auto* expression = std::get_if<SymExpr>(&given)) {
    if (type->kind() == TypeKind::TensorType) {
      slot.kind = Slot::Kind::kWrappedNumber;
      slot.expressions = {*expression};
      return slot;
    }
    return is_number_kind(type->kind()) ? make_number_slot(*type, *expression)
                                        : Result<Slot>(misfit(formal));
  }
  if (const auto* flag = std::get_if<bool>(&given)) {
    if (type->kind() != TypeKind::BoolType && type->kind() != TypeKind::NumberType) {
      return misfit(formal);
    }
    slot.constant = *flag;
  } else if (const auto* text = std::get_if<std::string>(&given)) {
    if (type->kind() != TypeKind::StringType) return misfit(formal);
    slot.constant = *text;
  } else if (const auto* dtype = std::get_if<DType>(&given)) {
    slot.constant = static_cast<int64_t>(scalar_type(*dtype));
  } else if (std::holds_alternative<Layout>(given)) {
    slot.constant = static_cast<int64_t>(at::kStrided);
  } else if (const auto* format = std::get_if<MemoryFormat>(&given)) {
    slot.constant =
        static_cast<int64_t>(format->name == "contiguous"         ? at::MemoryFormat::Contiguous
                             : format->name == "channels_last"    ? at::MemoryFormat::ChannelsLast
                             : format->name == "channels_last_3d" ? at::MemoryFormat::ChannelsLast3d
                                                                  : at::MemoryFormat::Preserve);
  } else if (std::holds_alternative<Device>(given)) {
    slot.constant = c10::Device(c10::kCPU);
  } else {
    return misfit(formal);
  }
  return slot;
}

std::optional<c10::OperatorHandle> find_operator(std::string_view op) {
  // "aten.add.Tensor" -> "aten::add", "Tensor"; "default" is the empty overload.
  const size_t first = op.find('.');
  const size_t last = op.rfind('.');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string name =
      std::string(op.substr(0, first)) + "::" + std::string(op.substr(first + 1, last - first - 1));
  std::string overload(op.substr(last + 1));
  if (overload == "default") overload.clear();
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

Result<OperatorCall> OperatorCall::make(const Node& node, Mode mode) {
  const std::optional<c10::OperatorHandle> handle = find_operator(node.op);
  if (!handle.has_value()) {
    return Error{fmt::format("{} is not in this libtorch", describe_node(node))};
  }
  OperatorCall call(*handle);
  const c10::FunctionSchema& schema = handle->schema();
  size_t num_used = 0;
  for (const c10::Argument& formal : schema.arguments()) {
    const Argument* given = find_argument(node, formal.name());
    num_used += given != nullptr ? 1 : 0;
    if (mode == Mode::kEvaluation) {
      if (std::optional<c10::IValue> value = evaluation_override(node.op, formal.name())) {
        Slot slot;
        slot.constant = *value;
        call.slots_.push_back(std::move(slot));
        continue;
      }
    }
    if (given != nullptr) {
      Result<Slot> slot = make_slot(formal, *given);
      if (!slot.ok()) {
        return while_doing(describe_node(node), slot.error());
      }
      call.slots_.push_back(std::move(slot.value()));
      continue;
    }
    Slot slot;
    if (formal.default_value().has_value()) {
      slot.constant = *formal.default_value();
    } else if (formal.type()->kind() != TypeKind::OptionalType) {
      return Error{fmt::format("{} lacks its argument {}", describe_node(node), formal.name())};
    }
    call.slots_.push_back(std::move(slot));
  }
  if (num_used != node.arguments.size()) {
    return Error{fmt::format("{} has an argument that its schema lacks", describe_node(node))};
  }
  if (schema.returns().size() != node.outputs.size()) {
    return Error{fmt::format("{} has {} results, not {}", describe_node(node),
                             schema.returns().size(), node.outputs.size())};
  }
  return call;
}

bool OperatorCall::draws_random_numbers() const {
  return op_.hasTag(at::Tag::nondeterministic_seeded);
}

void OperatorCall::fill(const std::vector<at::Tensor>& values, const SymbolValues& symbols,
                        std::vector<c10::IValue>& stack) const {
  stack.clear();
  for (const Slot& slot : slots_) {
    switch (slot.kind) {
      case Slot::Kind::kConstant:
        stack.push_back(slot.constant);
        break;
      case Slot::Kind::kTensor:
        stack.emplace_back(values[slot.tensors[0]->value]);
        break;
      case Slot::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (const std::optional<ValueId>& id : slot.tensors) list.push_back(values[id->value]);
        stack.emplace_back(std::move(list));
        break;
      }
      case Slot::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const std::optional<ValueId>& id : slot.tensors) {
          list.push_back(id.has_value() ? std::optional<at::Tensor>(values[id->value])
                                        : std::nullopt);
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Slot::Kind::kNumber:
        stack.push_back(to_ivalue(evaluate_or_throw(slot.expressions[0], symbols), slot.is_float));
        break;
      case Slot::Kind::kIntegerList: {
        c10::List<int64_t> list;
        list.reserve(slot.expressions.size());
        for (const SymExpr& expression : slot.expressions) {
          list.push_back(std::get<int64_t>(evaluate_or_throw(expression, symbols)));
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Slot::Kind::kFloatList: {
        c10::List<double> list;
        for (const SymExpr& expression : slot.expressions) {
          list.push_back(to_ivalue(evaluate_or_throw(expression, symbols), true).toDouble());
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Slot::Kind::kWrappedNumber:
        stack.emplace_back(wrapped_number(evaluate_or_throw(slot.expressions[0], symbols)));
        break;
    }
  }
}

}  // namespace trireme
