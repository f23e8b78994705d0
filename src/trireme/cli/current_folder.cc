#include "trireme/cli/current_folder.h"

#include <filesystem>
#include <system_error>

namespace trireme {

Status check_current_folder() {
  std::error_code code;
  static_cast<void>(std::filesystem::current_path(code));
  if (code != std::errc::no_such_file_or_directory) return Status();
  return Error{"the current folder no longer exists; change to one that does"};
}

}  // namespace trireme
