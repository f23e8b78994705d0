#include "trireme/import/output_path.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace trireme {

std::string behind_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as the kernel has it
  std::error_code code;
  fs::path target = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, code); ++i) {
    const fs::path link = fs::read_symlink(target, code);
    if (code) return path;
    target = target.parent_path() / link;  // the link alone where it is absolute
  }
  return target.string();
}

std::string temporary_name(const std::string& path) {
  return fmt::format("{}.{}.tmp", path, getpid());
}

void restore_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
}

Status check_creatable(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return Error{std::strerror(errno)};
  ::close(file);
  ::unlink(path.c_str());
  return Status();
}

Status write_whole(const std::string& path, std::string_view text) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_stream = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
  const std::string target = behind_links(path);
  const std::string draft = is_stream ? path : temporary_name(target);
  std::FILE* file = std::fopen(draft.c_str(), "wb");
  bool is_written = file != nullptr;
  if (is_written) {
    is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                 std::fflush(file) == 0 && (is_stream || fsync(fileno(file)) == 0);
    is_written = std::fclose(file) == 0 && is_written;
  }
  if (is_written && !is_stream) is_written = std::rename(draft.c_str(), target.c_str()) == 0;
  if (is_written) return Status();
  const Error error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
  if (!is_stream) ::unlink(draft.c_str());
  return error;
}

}  // namespace trireme
