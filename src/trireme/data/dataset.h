// Dataset: the samples of a run, one row a sample for each input of the model.
//
//   bytes:PATH[,PATH...]       files, or directories whose files are taken in sorted order (deep),
//                              joined; sample i = bytes[i*L, i*L+L)
//   tokens:FILE[:uint16|uint32] a flat file of little-endian numbers (uint16 when not said), the
//                              same rule
//   arrays:x.npy,y.npy         one array an input, in the order of the model's inputs
//   safetensors:FILE           one tensor an input, by the input's name
//
// A comma inside a path is not supported. bytes: and tokens: feed models whose one input is a
// matrix of integers, [batch, L]; what is left over behind the last whole sample is not used.
//
// Files are mapped, and only the rows that are asked for are touched. Integers are converted to the
// width of the input, checked for range; other conversions are refused.
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

namespace trireme {

// What the model expects of one input; sizes without the batch dim, nullopt where symbolic.
struct InputSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::optional<int64_t>> sizes;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t num_samples() const = 0;
  // The sizes of a row of input `index` (an index into the InputSpecs), all concrete.
  [[nodiscard]] virtual std::vector<int64_t> row_sizes(size_t index) const = 0;
  // Writes the rows of `samples` one after the other, contiguous, in the dtype of the InputSpec.
  // `out` has exactly the bytes of that many rows. Errors: a number that does not fit the input's
  // dtype. Any thread.
  [[nodiscard]] virtual Status read_rows(size_t index, std::span<const uint64_t> samples,
                                         std::span<std::byte> out) const = 0;
};

// Errors name the source, the input, the value found and the value expected. `seq_len`: L of bytes:
// and tokens:, needed where the input's size is symbolic; refused where it contradicts it.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_dataset(const std::string& spec,
                                                            std::vector<InputSpec> inputs,
                                                            std::optional<int64_t> seq_len);

}  // namespace trireme
