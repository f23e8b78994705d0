#include "trireme/torch/tensors.h"

#include <array>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "trireme/graph/op_cost.h"
#include "trireme/torch/guard.h"

namespace trireme {
namespace {

struct TypePair {
  DType dtype;
  at::ScalarType scalar_type;
};
constexpr std::array kTypes = {
    TypePair{DType::kUint8, at::kByte},
    TypePair{DType::kInt8, at::kChar},
    TypePair{DType::kInt16, at::kShort},
    TypePair{DType::kInt32, at::kInt},
    TypePair{DType::kInt64, at::kLong},
    TypePair{DType::kFloat16, at::kHalf},
    TypePair{DType::kFloat32, at::kFloat},
    TypePair{DType::kFloat64, at::kDouble},
    TypePair{DType::kBool, at::kBool},
    TypePair{DType::kBFloat16, at::kBFloat16},
    TypePair{DType::kUint16, at::ScalarType::UInt16},
    TypePair{DType::kUint32, at::ScalarType::UInt32},
    TypePair{DType::kUint64, at::ScalarType::UInt64},
    TypePair{DType::kComplex64, at::kComplexFloat},
    TypePair{DType::kComplex128, at::kComplexDouble},
};

}  // namespace

std::string exception_text(const std::exception& exception) {
  const std::string text = exception.what();
  return without_hint(text.substr(0, text.find('\n')));
}

std::string without_hint(std::string text) {
  return text.substr(0, text.find(". Hint: enable anomaly detection"));
}

at::ScalarType scalar_type(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.scalar_type;
  }
  check_failed(__FILE__, __LINE__, "dtype is in the table", "unknown dtype");
}

Result<DType> dtype_of(at::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.scalar_type == type) return pair.dtype;
  }
  return Error{fmt::format("tensors of type {} are not supported", at::toString(type))};
}

Result<at::Tensor> load_tensor(const Archive& archive, const StoredTensor& stored) {
  TRIREME_TRY(std::span<const std::byte> storage, archive.read_storage(stored));
  return guard([&]() -> Result<at::Tensor> {
    const auto options = at::TensorOptions().dtype(scalar_type(stored.dtype));
    const auto element = static_cast<size_t>(dtype_info(stored.dtype).size_bytes);
    // The mapping is read-only and only read: it is copied at once. clone() keeps dense strides.
    auto* data = const_cast<std::byte*>(storage.data()) +
                 static_cast<size_t>(stored.storage_offset) * element;
    if (tensor_bytes(stored.sizes, stored.dtype).value_or(0) == 0) {
      return at::empty_strided(stored.sizes, stored.strides, options);
    }
    at::Tensor tensor = at::from_blob(data, stored.sizes, stored.strides, options).clone();
    archive.zip().file().release(storage);
    return tensor;
  });
}

void copy_into(at::Tensor& tensor, const TensorView& view) {
  if (view.bytes.empty()) return;
  const at::ScalarType type = scalar_type(view.dtype);
  if (tensor.scalar_type() == type && tensor.is_contiguous()) {
    std::memcpy(tensor.data_ptr(), view.bytes.data(), view.bytes.size());
    return;
  }
  const auto options = at::TensorOptions().dtype(type);
  // The mapping is read-only and only read.
  auto* data = const_cast<std::byte*>(view.bytes.data());
  if (reinterpret_cast<uintptr_t>(data) % dtype_info(view.dtype).size_bytes == 0) {
    tensor.copy_(at::from_blob(data, view.sizes, options));
    return;
  }
  const at::Tensor aligned = at::empty(view.sizes, options);
  std::memcpy(aligned.data_ptr(), data, view.bytes.size());
  tensor.copy_(aligned);
}

Result<at::Tensor> empty_tensor(const TensorType& type, const SymbolValues& symbols) {
  TRIREME_TRY(std::vector<int64_t> sizes, concrete_sizes(type.sizes, symbols));
  TRIREME_TRY(std::vector<int64_t> strides, concrete_sizes(type.strides, symbols));
  return guard([&]() -> Result<at::Tensor> {
    const auto options = at::TensorOptions().dtype(scalar_type(type.dtype));
    at::Tensor tensor = at::empty_strided(sizes, strides, options);
    if (tensor.is_non_overlapping_and_dense()) return tensor;
    return at::empty(sizes, options);
  });
}

at::Tensor as_archived(const at::Tensor& value, const TensorType& type,
                       const SymbolValues& symbols) {
  Result<at::Tensor> expected = empty_tensor(type, symbols);
  TORCH_CHECK(expected.ok(), expected.ok() ? "" : expected.error().message);
  at::Tensor copy = std::move(expected.value());
  TORCH_CHECK(copy.sizes() == value.sizes(), "a tensor of sizes ", value.sizes(), " is sent where ",
              copy.sizes(), " is expected");
  if (copy.strides() == value.strides() && value.is_non_overlapping_and_dense()) return value;
  return copy.copy_(value);
}

std::span<std::byte> tensor_memory(const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.numel() == 0 || tensor.is_non_overlapping_and_dense(),
                "a tensor that travels has gaps");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace trireme
