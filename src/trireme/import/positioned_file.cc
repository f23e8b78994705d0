#include "trireme/import/positioned_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace trireme {

struct PositionedFile::Descriptor {
  int number = -1;

  explicit Descriptor(int given) : number(given) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number); }
};

Result<PositionedFile> PositionedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer; it does not matter for files.
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) return Error{fmt::format("cannot open {}: {}", path, std::strerror(errno))};
  PositionedFile file;
  file.path_ = path;
  file.descriptor_ = std::make_shared<const Descriptor>(number);
  struct stat status = {};
  if (fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) {
    return Error{fmt::format("{} is not a regular file", path)};
  }
  file.size_bytes_ = static_cast<uint64_t>(status.st_size);
  return file;
}

Status PositionedFile::read(uint64_t position, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count =
        ::pread(descriptor_->number, out.data(), out.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error{fmt::format("cannot read {}: {}", path_, std::strerror(errno))};
    if (count == 0) {
      struct stat status = {};
      const bool is_known = fstat(descriptor_->number, &status) == 0;
      return Error{fmt::format("{} has {} bytes now, but had {} when the run began", path_,
                               is_known ? status.st_size : 0, size_bytes_)};
    }
    out = out.subspan(static_cast<size_t>(count));
    position += static_cast<uint64_t>(count);
  }
  return Status();
}

}  // namespace trireme
