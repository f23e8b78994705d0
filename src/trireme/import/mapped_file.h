// MappedFile: the bytes of a file, mapped read-only. Copying shares the mapping.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/result.h"

namespace trireme {

class MappedFile {
 public:
  // Errors: the file cannot be opened, is a directory, or cannot be mapped.
  static Result<MappedFile> open(const std::string& path);

  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] const std::string& path() const { return path_; }
  // Gives memory back that reading these bytes of the file took; they can be read again.
  void release(std::span<const std::byte> bytes) const;

 private:
  struct Mapping;
  std::string path_;
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace trireme
