// A Dataset of tensors in files, one an input: sample i is row i (dim 0) of each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/sources.h"
#include "trireme/import/mapped_file.h"
#include "trireme/import/safetensors.h"

namespace trireme {

struct RowTensor {
  std::string name;  // in errors: "x.npy", or "tensor x of data.safetensors"
  MappedFile file;   // keeps the bytes of `tensor` alive
  TensorView tensor;
};

// One tensor for each input of the request, in its order.
// Errors: a scalar, no rows, another number of rows than the first, a row unlike the input, a dtype
// that is not converted.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_row_dataset(const SourceRequest& request,
                                                                std::vector<RowTensor> tensors);

}  // namespace trireme
