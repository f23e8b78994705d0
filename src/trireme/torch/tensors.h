// Between our types and torch's.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/import/archive.h"
#include "trireme/import/safetensors.h"

namespace trireme {

[[nodiscard]] at::ScalarType scalar_type(DType dtype);
[[nodiscard]] Result<DType> dtype_of(at::ScalarType type);

// A copy of a stored tensor, with its strides.
[[nodiscard]] Result<at::Tensor> load_tensor(const Archive& archive, const StoredTensor& stored);
// Fills a tensor of the same sizes from a safetensors file; converts dtypes as Tensor.copy_ does.
void copy_into(at::Tensor& tensor, const TensorView& view);

// A new tensor of the type with sizes and strides evaluated. Dense: where the archive's strides
// leave gaps or overlap, it is contiguous.
[[nodiscard]] Result<at::Tensor> empty_tensor(const TensorType& type, const SymbolValues& symbols);

// `value` with the strides of empty_tensor(type, symbols), copied where it has others. Throws where
// its sizes are others.
[[nodiscard]] at::Tensor as_archived(const at::Tensor& value, const TensorType& type,
                                     const SymbolValues& symbols);

// The memory of a dense tensor, whatever the order of its dims.
[[nodiscard]] std::span<std::byte> tensor_memory(const at::Tensor& tensor);

}  // namespace trireme
