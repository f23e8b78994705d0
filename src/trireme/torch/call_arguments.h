// CallArguments: what an operator is called with, by the names of its schema.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace trireme {

// Throws where an argument is of another type than asked for.
class CallArguments {
 public:
  // Both outlive this.
  CallArguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values)
      : schema_(schema), values_(values) {}

  // nullptr for what the schema lacks and for None.
  [[nodiscard]] const c10::IValue* find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] bool is_tensor(std::string_view name) const;
  // Undefined where there is none.
  [[nodiscard]] at::Tensor tensor(std::string_view name) const;
  [[nodiscard]] std::vector<at::Tensor> tensors(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name, double otherwise = 0) const;
  [[nodiscard]] int64_t integer(std::string_view name, int64_t otherwise = 0) const;
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] std::vector<int64_t> sizes(std::string_view name) const;

 private:
  const c10::FunctionSchema& schema_;
  const std::vector<c10::IValue>& values_;
};

}  // namespace trireme
