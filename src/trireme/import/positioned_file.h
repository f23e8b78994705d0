// PositionedFile: reads at any place of a file, without mapping it: a file that another program
// cuts short while it is read is an error here, where a mapping would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/result.h"

namespace trireme {

class PositionedFile {
 public:
  // Errors: the file cannot be opened or is not a regular file.
  static Result<PositionedFile> open(const std::string& path);

  // Fills `out` with the bytes from `position`. Errors: the file ends before; the disk fails. Any
  // thread.
  [[nodiscard]] Status read(uint64_t position, std::span<std::byte> out) const;
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }  // when it was opened
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Descriptor;
  std::string path_;
  uint64_t size_bytes_ = 0;
  std::shared_ptr<const Descriptor> descriptor_;  // copies share it
};

}  // namespace trireme
