#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/row_dataset.h"
#include "trireme/data/sources.h"
#include "trireme/import/safetensors.h"

namespace trireme {

Result<std::unique_ptr<Dataset>> open_safetensors(const SourceRequest& request) {
  const std::string& path = request.rest;
  if (path.empty()) return Error{fmt::format("the data '{}' names an empty path", request.spec)};
  TRIREME_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  std::vector<RowTensor> tensors;
  for (const InputSpec& input : request.inputs) {
    const auto found = file.tensors().find(input.name);
    if (found == file.tensors().end()) {
      std::vector<std::string> names;
      for (const auto& [name, tensor] : file.tensors()) names.push_back(name);
      return Error{fmt::format("{} has no tensor for the {} {}; it has {}", path,
                               input.is_column ? "column" : "input", input.name,
                               names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")))};
    }
    TRIREME_TRY(RowTensor tensor, row_tensor(fmt::format("tensor {} of {}", input.name, path),
                                             file.file(), found->second));
    tensors.push_back(std::move(tensor));
  }
  return open_row_dataset(request, std::move(tensors));
}

}  // namespace trireme
