#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/row_dataset.h"
#include "trireme/data/sources.h"
#include "trireme/import/npy.h"

namespace trireme {

// --seq-len is not looked at: rows have their own sizes, and one --seq-len serves --data and
// --eval-data, which may be of different kinds.
Result<std::unique_ptr<Dataset>> open_arrays(const SourceRequest& request) {
  TRIREME_TRY(const std::vector<std::string> paths, split_paths(request));
  if (paths.size() != request.inputs.size()) {
    std::vector<std::string> names;
    for (const InputSpec& input : request.inputs) names.push_back(input.name);
    return Error{fmt::format("{} gives {} arrays, but the model has {} inputs: {}", request.spec,
                             paths.size(), names.size(), fmt::join(names, ", "))};
  }
  std::vector<RowTensor> tensors;
  for (const std::string& path : paths) {
    TRIREME_TRY(NpyFile npy, open_npy(path));
    tensors.push_back({.name = path, .file = npy.file, .tensor = npy.array});
  }
  return open_row_dataset(request, std::move(tensors));
}

}  // namespace trireme
