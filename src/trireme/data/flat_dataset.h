// A Dataset of one input whose samples are consecutive runs of L numbers in files that are joined.
//
//   files     a.txt      b.txt   c.txt
//   numbers   |0 1 2 3 4|5 6 7|8 9 10|
//   L = 4     |sample 0|sample 1 |..  the rest is too short for a sample and left out
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/sources.h"

namespace trireme {

struct FlatFile {
  std::string path;
  uint64_t size_bytes = 0;
};

// Files are opened when a sample in them is read, a bounded number at a time. Numbers are
// little-endian of `dtype`.
// Errors: the model has not exactly one input of the form [batch, L] of integers; L is not known,
// or --seq-len contradicts it; the data is shorter than one sample.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_flat_dataset(const SourceRequest& request,
                                                                 std::vector<FlatFile> files,
                                                                 DType dtype);

// The file with its size. Errors: it is missing, unreadable or not a regular file.
[[nodiscard]] Result<FlatFile> find_flat_file(const std::string& path);

}  // namespace trireme
