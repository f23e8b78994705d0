#include "trireme/import/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace trireme {

struct MappedFile::Mapping {
  void* address = nullptr;
  size_t size = 0;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (address != nullptr) munmap(address, size);
  }
};

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer; it does not matter for files.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Error{fmt::format("cannot open {}: {}", path, std::strerror(errno))};
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return Error{fmt::format("{} is not a regular file", path)};
  }
  auto mapping = std::make_shared<Mapping>();
  mapping->size = static_cast<size_t>(status.st_size);
  if (mapping->size > 0) {
    void* address = mmap(nullptr, mapping->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      const int code = errno;
      ::close(descriptor);
      return Error{fmt::format("cannot map {}: {}", path, std::strerror(code))};
    }
    mapping->address = address;
  }
  ::close(descriptor);
  MappedFile file;
  file.path_ = path;
  file.mapping_ = std::move(mapping);
  return file;
}

std::span<const std::byte> MappedFile::bytes() const {
  return {static_cast<const std::byte*>(mapping_->address), mapping_->size};
}

void MappedFile::release(std::span<const std::byte> bytes) const {
  if (bytes.empty()) return;
  // Whole pages only; madvise refuses a beginning inside a page.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  // A failure leaves the pages where they are, which is harmless.
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED));
}

}  // namespace trireme
