// NumPy's .npy format, versions 1 to 3: one array, C order, little-endian.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"
#include "trireme/import/mapped_file.h"
#include "trireme/import/safetensors.h"

namespace trireme {

struct NpyFile {
  MappedFile file;  // keeps the bytes of `array` alive
  TensorView array;
};

// Errors: not an .npy file, Fortran order, big-endian, a dtype that is no tensor dtype, truncated.
[[nodiscard]] Result<NpyFile> open_npy(const std::string& path);

}  // namespace trireme
