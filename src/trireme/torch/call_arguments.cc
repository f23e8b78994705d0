#include "trireme/torch/call_arguments.h"

namespace trireme {

const c10::IValue* CallArguments::find(std::string_view name) const {
  for (size_t i = 0; i < schema_.arguments().size(); ++i) {
    if (schema_.arguments()[i].name() != name) continue;
    return values_[i].isNone() ? nullptr : &values_[i];
  }
  return nullptr;
}

bool CallArguments::is_tensor(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value != nullptr && value->isTensor();
}

at::Tensor CallArguments::tensor(std::string_view name) const {
  return is_tensor(name) ? find(name)->toTensor() : at::Tensor();
}

std::vector<at::Tensor> CallArguments::tensors(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value == nullptr ? std::vector<at::Tensor>() : value->toTensorVector();
}

double CallArguments::number(std::string_view name, double otherwise) const {
  const c10::IValue* value = find(name);
  if (value == nullptr) return otherwise;
  return value->isTensor() ? value->toTensor().item<double>() : value->toScalar().toDouble();
}

int64_t CallArguments::integer(std::string_view name, int64_t otherwise) const {
  const c10::IValue* value = find(name);
  if (value == nullptr) return otherwise;
  return value->isTensor() ? value->toTensor().item<int64_t>() : value->toScalar().toLong();
}

bool CallArguments::flag(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value != nullptr && value->toBool();
}

std::vector<int64_t> CallArguments::sizes(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value == nullptr ? std::vector<int64_t>() : value->toIntVector();
}

}  // namespace trireme
