#include <fmt/format.h>

#include "trireme/data/flat_dataset.h"
#include "trireme/data/sources.h"

namespace trireme {

Result<std::unique_ptr<Dataset>> open_tokens(const SourceRequest& request) {
  std::string path = request.rest;
  DType dtype = DType::kUint16;
  if (const size_t colon = path.rfind(':'); colon != std::string::npos) {
    const std::string type = path.substr(colon + 1);
    const std::string before = path.substr(0, colon);
    if (type == "uint16" || type == "uint32") {
      dtype = type == "uint32" ? DType::kUint32 : DType::kUint16;
      path = before;
    } else if (!find_flat_file(path).ok() && find_flat_file(before).ok()) {
      // Not a colon in the file's own name.
      return Error{fmt::format("{}: tokens are uint16 or uint32, not '{}'", request.spec, type)};
    }
  }
  if (path.empty()) return Error{fmt::format("the data '{}' names an empty path", request.spec)};
  TRIREME_TRY(FlatFile file, find_flat_file(path));
  const uint64_t size = dtype == DType::kUint32 ? 4 : 2;
  if (file.size_bytes % size != 0) {
    return Error{fmt::format("{}: {} has {} bytes, not a multiple of the {} of a {} token",
                             request.spec, path, file.size_bytes, size, dtype_info(dtype).name)};
  }
  std::vector<FlatFile> files;
  files.push_back(std::move(file));
  return open_flat_dataset(request, std::move(files), dtype);
}

}  // namespace trireme
