// DType: the element types of tensors, with their names in text forms and in safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trireme {

enum class DType : uint8_t {
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBool,
  kBFloat16,
  kUint16,
  kUint32,
  kUint64,
  kComplex64,
  kComplex128,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;         // in text forms: f32, i64, bf16
  std::string_view safetensors;  // in safetensors headers: F32, I64, BF16; empty when it has none
  int32_t size_bytes;
  bool is_floating;  // real or complex: can carry a gradient
};

[[nodiscard]] const DTypeInfo& dtype_info(DType dtype);
// Bytes of a contiguous tensor; nullopt when a size is negative or the product does not fit.
[[nodiscard]] std::optional<uint64_t> tensor_bytes(std::span<const int64_t> sizes, DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);
[[nodiscard]] std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace trireme
