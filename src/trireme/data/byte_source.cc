#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "trireme/data/flat_dataset.h"
#include "trireme/data/sources.h"

namespace trireme {
namespace {

// Regular files below the directory, sorted by path as bytes. Links to files are read, links to
// directories are not followed: they could lead in circles.
Result<std::vector<FlatFile>> files_below(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code code;
  fs::recursive_directory_iterator entry(directory, code);
  std::vector<std::string> paths;
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    std::error_code is_gone;
    if (entry->is_regular_file(is_gone)) paths.push_back(entry->path().string());
  }
  // The iterator does not say which directory below it failed.
  if (code) return Error{fmt::format("cannot read all of {}: {}", directory, code.message())};
  std::sort(paths.begin(), paths.end());
  std::vector<FlatFile> files;
  for (const std::string& path : paths) {
    TRIREME_TRY(FlatFile file, find_flat_file(path));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_bytes(const SourceRequest& request) {
  TRIREME_TRY(const std::vector<std::string> paths, split_paths(request));
  std::vector<FlatFile> files;
  for (const std::string& path : paths) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) {
      TRIREME_TRY(std::vector<FlatFile> below, files_below(path));
      std::move(below.begin(), below.end(), std::back_inserter(files));
      continue;
    }
    TRIREME_TRY(FlatFile file, find_flat_file(path));
    files.push_back(std::move(file));
  }
  return open_flat_dataset(request, std::move(files), DType::kUint8);
}

}  // namespace trireme
