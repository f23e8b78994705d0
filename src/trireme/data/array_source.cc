#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/row_dataset.h"
#include "trireme/data/sources.h"
#include "trireme/import/npy.h"

namespace trireme {

namespace {

// The path of the column "NAME=PATH" among `paths`, which loses it.
Result<std::string> take_column(const SourceRequest& request, const std::string& name,
                                std::vector<std::string>& paths) {
  const std::string prefix = name + "=";
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    if (!path->starts_with(prefix)) continue;
    std::string found = path->substr(prefix.size());
    paths.erase(path);
    return found;
  }
  return Error{fmt::format("{} has no column {}; add it as ,{}=PATH", request.spec, name, name)};
}

}  // namespace

// --seq-len is not looked at: rows have their own sizes, and one --seq-len serves --data and
// --eval-data, which may be of different kinds.
Result<std::unique_ptr<Dataset>> open_arrays(const SourceRequest& request) {
  TRIREME_TRY(std::vector<std::string> paths, split_paths(request));
  std::vector<std::string> names;
  std::vector<std::string> columns;
  for (const InputSpec& input : request.inputs) {
    if (!input.is_column) {
      names.push_back(input.name);
      continue;
    }
    TRIREME_TRY(std::string path, take_column(request, input.name, paths));
    columns.push_back(std::move(path));
  }
  if (paths.size() != names.size()) {
    return Error{fmt::format("{} gives {} arrays, but the model has {} inputs: {}", request.spec,
                             paths.size(), names.size(), fmt::join(names, ", "))};
  }
  // Columns come behind the inputs.
  paths.insert(paths.end(), columns.begin(), columns.end());
  std::vector<RowTensor> tensors;
  for (const std::string& path : paths) {
    TRIREME_TRY(const NpyFile npy, open_npy(path));
    TRIREME_TRY(RowTensor tensor, row_tensor(path, npy.file, npy.array));
    tensors.push_back(std::move(tensor));
  }
  return open_row_dataset(request, std::move(tensors));
}

}  // namespace trireme
