// Dataset: the samples of a run, one row a sample for each input of the model.
//
//   bytes:PATH[,PATH...]       files, or directories whose files are taken in sorted order (deep),
//                              joined; sample i = bytes[i*L, i*L+L)
//   tokens:FILE[:uint16|uint32] a flat file of little-endian numbers (uint16 when not said), the
//                              same rule
//   arrays:x.npy,y.npy         one array an input, in the order of the model's inputs
//   safetensors:FILE           one tensor an input, by the input's name
//   random:N                   N samples that are made up: numbers from 0 to 1, and integers that
//                              the model can look up; the same ones each time
//
// A comma inside a path is written as \, in bytes: and arrays:. bytes: and tokens: feed models
// whose one input is a matrix of integers; what is left over behind the last whole sample is not
// used.
//
// Samples lie in dim 0 of an array or tensor, wherever the model's input has its batch. A jagged
// input has the values of all samples there, and an input without a batch is given as it is.
// arrays: takes a column that is no input of the model as NAME=PATH.
//
// Only the rows that are asked for are read. Integers are converted to the width of the input,
// checked for range; other conversions are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"
#include "trireme/graph/input_layout.h"

namespace trireme {

// What is expected of one input.
struct InputSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  // Of a row: without the dim of the batch or of the values; all of them without a batch. nullopt
  // where symbolic.
  std::vector<std::optional<int64_t>> sizes;
  InputCut cut = InputCut::kRows;
  bool says_end = false;   // offsets as the model takes them have one entry more than samples
  bool is_column = false;  // no input of the model: one number a sample, such as its length
  // For what is made up: the sizes of a row in the export, and what integers lie below.
  std::vector<int64_t> example_sizes = {};
  std::optional<int64_t> below = {};
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t num_samples() const = 0;
  // Of input `index` (an index into the InputSpecs): as many as samples for kRows, one for kShared,
  // as many as values for kValues; offsets may have one more than samples.
  [[nodiscard]] virtual int64_t num_rows(size_t index) const = 0;
  // The sizes of a row, all concrete.
  [[nodiscard]] virtual std::vector<int64_t> row_sizes(size_t index) const = 0;
  // Writes the leading elements of these rows one after the other, in the dtype of the InputSpec:
  // of each row as many as fill `out` evenly. Errors: a number that does not fit the dtype; a file
  // that became shorter. Any thread.
  [[nodiscard]] virtual Status read_rows(size_t index, std::span<const uint64_t> rows,
                                         std::span<std::byte> out) const = 0;
};

// Errors name the source, the input, the value found and the value expected. `seq_len`: L of bytes:
// and tokens:, needed where the input's size is symbolic; refused where it contradicts it.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_dataset(const std::string& spec,
                                                            std::vector<InputSpec> inputs,
                                                            std::optional<int64_t> seq_len);

}  // namespace trireme
