// A Dataset of tensors in files, one an input: sample i is row i (dim 0) of each, but for jagged
// inputs and those without a batch (dataset.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/sources.h"
#include "trireme/import/mapped_file.h"
#include "trireme/import/positioned_file.h"
#include "trireme/import/safetensors.h"

namespace trireme {

struct RowTensor {
  std::string name;  // in errors: "x.npy", or "tensor x of data.safetensors"
  PositionedFile file;
  uint64_t position = 0;  // of the first byte
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
};

// `tensor` lies in `mapped`.
[[nodiscard]] Result<RowTensor> row_tensor(std::string name, const MappedFile& mapped,
                                           const TensorView& tensor);

// One tensor for each input of the request, in its order.
// Errors: a scalar where rows are needed, no rows, another number of rows than the first, a row
// unlike the input, a dtype that is not converted.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_row_dataset(const SourceRequest& request,
                                                                std::vector<RowTensor> tensors);

}  // namespace trireme
