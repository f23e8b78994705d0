#include "trireme/graph/dtype.h"

#include <array>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr std::array kDTypes = {
    DTypeInfo{DType::kUint8, "u8", "U8", 1, false},
    DTypeInfo{DType::kInt8, "i8", "I8", 1, false},
    DTypeInfo{DType::kInt16, "i16", "I16", 2, false},
    DTypeInfo{DType::kInt32, "i32", "I32", 4, false},
    DTypeInfo{DType::kInt64, "i64", "I64", 8, false},
    DTypeInfo{DType::kFloat16, "f16", "F16", 2, true},
    DTypeInfo{DType::kFloat32, "f32", "F32", 4, true},
    DTypeInfo{DType::kFloat64, "f64", "F64", 8, true},
    DTypeInfo{DType::kBool, "bool", "BOOL", 1, false},
    DTypeInfo{DType::kBFloat16, "bf16", "BF16", 2, true},
    DTypeInfo{DType::kUint16, "u16", "U16", 2, false},
    DTypeInfo{DType::kUint32, "u32", "U32", 4, false},
    DTypeInfo{DType::kUint64, "u64", "U64", 8, false},
    DTypeInfo{DType::kComplex64, "c64", "C64", 8, true},
    DTypeInfo{DType::kComplex128, "c128", "", 16, true},
};

}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info;
  }
  check_failed(__FILE__, __LINE__, "dtype is in the table", "unknown dtype");
}

std::optional<uint64_t> tensor_bytes(std::span<const int64_t> sizes, DType dtype) {
  auto bytes = static_cast<uint64_t>(dtype_info(dtype).size_bytes);
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.safetensors == name && !name.empty()) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace trireme
