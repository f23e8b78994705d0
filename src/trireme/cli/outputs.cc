#include "trireme/cli/outputs.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

namespace trireme {

Status check_writable(const std::string& option, const std::string& path, WriteKind kind) {
  namespace fs = std::filesystem;
  if (path.empty()) return Status();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return Error{fmt::format("{} {}: this is a folder, not a file", option, path)};
  }
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, ignored)) {
    return Error{fmt::format("{} {}: there is no folder {}", option, path, folder.string())};
  }
  const bool is_in_place = kind == WriteKind::kInPlace && fs::exists(path, ignored);
  if (::access(is_in_place ? path.c_str() : folder.c_str(), is_in_place ? W_OK : W_OK | X_OK) !=
      0) {
    return Error{fmt::format("{} {}: cannot write {}: {}", option, path,
                             is_in_place ? "the file" : "to the folder", std::strerror(errno))};
  }
  return Status();
}

Status check_outputs(const RunRequest& request) {
  TRIREME_TRY(check_writable("--save", request.save, WriteKind::kReplaced));
  TRIREME_TRY(check_writable("--metrics", request.metrics, WriteKind::kInPlace));
  return check_writable("--grad-norms", request.grad_norms, WriteKind::kInPlace);
}

}  // namespace trireme
