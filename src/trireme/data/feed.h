// Feed: turns the samples of a step into the inputs of its micro-batches, and says their sizes.
//
//   data of the whole run     a micro-batch of samples 2 and 0
//   x        [4, 5, 8]        [5, 2, 8]      its batch lies in dim 1 of the model's input
//   indices  [10]             [4]            jagged: the values of the two samples
//   offsets  [4] 0 3 6 9      [2] 0 3        rebased to those values
//   tokens   [4, 16]          [2, 11]        cropped: 11 is the longest of the step's samples
//   mask     [8, 8]           [8, 8]         has no batch
//
// All sizes follow from the data and the samples, so that every rank knows them ahead of the step
// without a word. All micro-batches of a step have the lengths of the step's longest sample: what
// is padded does not depend on how the batch is shared out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/dataset.h"
#include "trireme/graph/graph.h"
#include "trireme/graph/input_layout.h"

namespace trireme {

// The column `column` of the data says how long each sample is along a symbolic dim of an input,
// and along all dims of that symbol.
struct LengthOption {
  std::string input;
  std::optional<size_t> dim;  // needed where the input has several symbolic dims
  std::string column;         // may be an input of the model, too
};

struct FeedOptions {
  std::string data;  // dataset.h
  std::optional<int64_t> seq_len;
  std::vector<LengthOption> lengths;
};

// The elements of an input of one micro-batch, contiguous, as the graph takes them.
struct InputTensor {
  std::vector<int64_t> sizes;
  std::shared_ptr<std::byte> memory;
  size_t size_bytes = 0;
};

class Feed {
 public:
  // Errors: those of input_layouts and open_dataset; sizes that contradict each other; offsets that
  // do not ascend from 0 to the number of values; lengths of no symbolic dim, or out of range;
  // sizes outside the bounds of the graph.
  static Result<std::unique_ptr<Feed>> open(const Graph& graph, const FeedOptions& options);

  [[nodiscard]] int64_t num_samples() const { return data_->num_samples(); }
  // Of the offsets and lengths: two ranks with the same digest agree on all sizes.
  [[nodiscard]] uint64_t digest() const { return digest_; }

  // The sizes that hold for all micro-batches of a step of these samples. Any thread, as the rest.
  [[nodiscard]] Result<SymbolValues> step_symbols(std::span<const uint64_t> samples) const;
  // Those of one micro-batch: the step's, the batch, and the numbers of values.
  [[nodiscard]] Result<SymbolValues> micro_batch_symbols(const SymbolValues& step,
                                                         std::span<const uint64_t> samples) const;
  // `index` counts the user's inputs; `symbols` are those of the micro-batch.
  [[nodiscard]] Result<InputTensor> read(size_t index, std::span<const uint64_t> samples,
                                         const SymbolValues& symbols) const;

 private:
  struct Input {
    InputLayout layout;
    std::string name;
    TensorType type;
  };
  struct Length {
    std::string symbol;
    std::string option;   // "x=n"
    size_t column = 0;    // of the dataset
    int64_t least = 1;    // for which the model was exported; no model takes a size of 0
    int64_t longest = 0;  // of all samples
  };
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Feed() = default;
  Status bind_symbols();
  Status check_offsets(size_t index);
  Status add_length(const LengthOption& option, size_t column);
  Status check_lengths(const LengthOption& option, Length& length);
  Status check_bounds(const Graph& graph);
  // To what a step is cropped whose longest sample has this length.
  [[nodiscard]] int64_t cropped(const Length& length, int64_t longest) const;
  // Where the samples lie in the values of input `index`.
  [[nodiscard]] Result<std::vector<Range>> value_ranges(size_t index,
                                                        std::span<const uint64_t> samples) const;
  [[nodiscard]] Result<std::vector<int64_t>> read_integers(size_t column,
                                                           std::span<const uint64_t> rows) const;
  Status read_cropped(size_t index, std::span<const uint64_t> samples, InputTensor& tensor) const;
  Status read_offsets(size_t index, std::span<const uint64_t> samples, InputTensor& tensor) const;

  std::unique_ptr<Dataset> data_;
  std::string batch_;
  std::vector<Input> inputs_;
  std::vector<Length> lengths_;
  SymbolValues symbols_;  // that the rows of the data decide, at their full length
  uint64_t digest_ = 0;
};

}  // namespace trireme
