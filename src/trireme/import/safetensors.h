// The safetensors format: an 8-byte little-endian header length, a JSON header of name -> dtype,
// shape and byte range, then the bytes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"
#include "trireme/import/mapped_file.h"

namespace trireme {

struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::span<const std::byte> bytes;  // contiguous
};

class SafetensorsFile {
 public:
  // Errors: not a safetensors file, a byte range outside the file, unlike the shape or inside
  // another one, a dtype that is not known.
  static Result<SafetensorsFile> open(const std::string& path);
  [[nodiscard]] const std::map<std::string, TensorView, std::less<>>& tensors() const {
    return tensors_;
  }
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  // Keeps the bytes of the tensors alive.
  [[nodiscard]] const MappedFile& file() const { return file_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  Status read_header();

  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace trireme
