#include "trireme/data/feed.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/philox.h"
#include "trireme/data/conversion.h"
#include "trireme/data/size_bounds.h"
#include "trireme/graph/index_bounds.h"

namespace trireme {
namespace {

constexpr int64_t kRowsAtOnce = 1 << 16;  // of a pass over offsets or lengths

InputSpec spec_of(const InputLayout& layout, const std::string& name, const TensorType& type,
                  const SymbolValues& hints) {
  InputSpec spec{.name = name,
                 .dtype = type.dtype,
                 .sizes = {},
                 .cut = layout.cut,
                 .says_end = layout.says_end};
  // Offsets into all values of a run may need more digits than those of a micro-batch.
  if (layout.cut == InputCut::kOffsets) spec.dtype = DType::kInt64;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (layout.cut != InputCut::kShared && d == layout.batch_dim) continue;
    spec.sizes.push_back(type.sizes[d].is_integer() ? std::optional(type.sizes[d].integer)
                                                    : std::nullopt);
    const Result<int64_t> example = evaluate_integer(type.sizes[d], hints);
    spec.example_sizes.push_back(example.ok() ? example.value() : 1);
  }
  return spec;
}

// The sizes of a row, out of those of the whole input.
template <typename Size>
std::vector<Size> row_of(const InputLayout& layout, std::vector<Size> sizes) {
  if (layout.cut != InputCut::kShared) {
    sizes.erase(sizes.begin() + static_cast<int64_t>(layout.batch_dim));
  }
  return sizes;
}

InputTensor allocate(std::vector<int64_t> sizes, DType dtype) {
  constexpr std::align_val_t kAlignment{64};  // as torch's own
  InputTensor tensor{.sizes = std::move(sizes), .memory = {}, .size_bytes = 0};
  tensor.size_bytes = static_cast<size_t>(dtype_info(dtype).size_bytes);
  for (const int64_t size : tensor.sizes) tensor.size_bytes *= static_cast<size_t>(size);
  tensor.memory = std::shared_ptr<std::byte>(
      static_cast<std::byte*>(::operator new(std::max<size_t>(1, tensor.size_bytes), kAlignment)),
      [](std::byte* memory) { ::operator delete(memory, kAlignment); });
  return tensor;
}

std::span<std::byte> bytes_of(const InputTensor& tensor) {
  return {tensor.memory.get(), tensor.size_bytes};
}

// Calls `copy(from, to, count)` in elements for each run of a row of sizes `stored` of which the
// leading `wanted` remain; `to` counts within the cropped row.
template <typename Copy>
void for_each_run(const std::vector<int64_t>& stored, const std::vector<int64_t>& wanted,
                  const Copy& copy) {
  std::vector<int64_t> index(wanted.size(), 0);
  const int64_t count = wanted.empty() ? 1 : wanted.back();
  int64_t to = 0;
  while (true) {
    int64_t from = 0;
    for (size_t d = 0; d < index.size(); ++d) from = from * stored[d] + index[d];
    copy(from, to, count);
    to += count;
    size_t d = index.empty() ? 0 : index.size() - 1;
    while (d-- > 0 && ++index[d] == wanted[d]) index[d] = 0;
    if (d == SIZE_MAX) return;
  }
}

std::vector<uint64_t> counted_from(int64_t first, int64_t end) {
  std::vector<uint64_t> rows(static_cast<size_t>(end - first));
  std::iota(rows.begin(), rows.end(), static_cast<uint64_t>(first));
  return rows;
}

}  // namespace

Result<std::unique_ptr<Feed>> Feed::open(const Graph& graph, const FeedOptions& options) {
  TRIREME_TRY(const std::vector<InputLayout> layouts, input_layouts(graph));
  std::unique_ptr<Feed> feed(new Feed());
  feed->batch_ = batch_symbol(graph).value_or("");
  const std::vector<std::optional<int64_t>> bounds = index_bounds(graph);
  std::vector<InputSpec> specs;
  for (const InputLayout& layout : layouts) {
    const GraphInput& input = graph.inputs[layout.input];
    feed->inputs_.push_back(
        {.layout = layout, .name = input.names[0], .type = graph.values[input.value.value].type});
    specs.push_back(spec_of(layout, input.names[0], feed->inputs_.back().type, graph.symbol_hints));
    specs.back().below = bounds[layout.input];
  }
  std::vector<size_t> columns;
  for (const LengthOption& length : options.lengths) {
    const auto is_named = [&](const InputSpec& spec) { return spec.name == length.column; };
    const auto found = std::find_if(specs.begin(), specs.end(), is_named);
    columns.push_back(static_cast<size_t>(found - specs.begin()));
    if (found == specs.end()) {
      specs.push_back({.name = length.column, .dtype = DType::kInt64, .is_column = true});
    } else if (found->cut != InputCut::kRows || !found->sizes.empty() ||
               !is_integer(found->dtype)) {
      return Error{fmt::format("--lengths {}={}: the input {} is not one integer for each sample",
                               length.input, length.column, length.column)};
    }
  }
  TRIREME_TRY(feed->data_, open_dataset(options.data, specs, options.seq_len));
  TRIREME_TRY(feed->bind_symbols());
  for (size_t i = 0; i < feed->inputs_.size(); ++i) {
    if (feed->inputs_[i].layout.cut == InputCut::kValues) TRIREME_TRY(feed->check_offsets(i));
  }
  for (size_t i = 0; i < options.lengths.size(); ++i) {
    TRIREME_TRY(feed->add_length(options.lengths[i], columns[i]));
  }
  TRIREME_TRY(feed->check_bounds(graph));
  return feed;
}

Status Feed::bind_symbols() {
  // Bare symbols first; expressions over them are checked afterwards.
  for (const bool is_check : {false, true}) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Input& input = inputs_[i];
      const std::vector<SymExpr> sizes = row_of(input.layout, input.type.sizes);
      const std::vector<int64_t> row = data_->row_sizes(i);
      for (size_t d = 0; d < sizes.size(); ++d) {
        if (!is_check && sizes[d].is_symbol()) symbols_.try_emplace(sizes[d].name, row[d]);
        if (!is_check) continue;
        TRIREME_TRY(const int64_t expected, evaluate_integer(sizes[d], symbols_));
        if (expected == row[d]) continue;
        const bool is_behind = input.layout.cut != InputCut::kShared && d >= input.layout.batch_dim;
        return Error{fmt::format("dim {} of input '{}' is {} in the data, but {} is expected",
                                 d + (is_behind ? 1 : 0), input.name, row[d], expected)};
      }
    }
  }
  return Status();
}

Result<std::vector<int64_t>> Feed::read_integers(size_t column,
                                                 std::span<const uint64_t> rows) const {
  // A column has no dtype but that of its spec; an input has its own.
  const bool is_own = column < inputs_.size() && inputs_[column].layout.cut == InputCut::kRows;
  const DType dtype = is_own ? inputs_[column].type.dtype : DType::kInt64;
  std::vector<std::byte> raw(rows.size() * static_cast<size_t>(dtype_info(dtype).size_bytes));
  TRIREME_TRY(data_->read_rows(column, rows, raw));
  std::vector<int64_t> numbers(rows.size());
  TRIREME_TRY(
      convert_numbers(raw, dtype, std::as_writable_bytes(std::span(numbers)), DType::kInt64));
  return numbers;
}

Status Feed::check_offsets(size_t index) {
  const Input& values = inputs_[index];
  const size_t column = values.layout.offsets;
  const std::string& name = inputs_[column].name;
  const int64_t num_values = data_->num_rows(index);
  const int64_t num_rows = data_->num_rows(column);
  for (size_t other = 0; other < index; ++other) {
    const InputLayout& layout = inputs_[other].layout;
    if (layout.cut != InputCut::kValues || layout.offsets != column) continue;
    if (data_->num_rows(other) == num_values) return Status();  // checked with the other
    return Error{fmt::format("{} has {} values, but {} has {}, and {} cuts both", values.name,
                             num_values, inputs_[other].name, data_->num_rows(other), name)};
  }
  int64_t before = 0;
  for (int64_t first = 0; first < num_rows; first += kRowsAtOnce) {
    const int64_t end = std::min(num_rows, first + kRowsAtOnce);
    TRIREME_TRY(const std::vector<int64_t> offsets,
                read_integers(column, counted_from(first, end)));
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t offset = offsets[i];
      const int64_t row = first + static_cast<int64_t>(i);
      digest_ = mix_bits(digest_, static_cast<uint64_t>(offset));
      if (row == 0 && offset != 0) {
        return Error{fmt::format("offset 0 of {} is {}, not 0", name, offset)};
      }
      if (offset < before) {
        return Error{fmt::format("offset {} of {} is {}, less than the {} before it", row, name,
                                 offset, before)};
      }
      if (offset > num_values) {
        return Error{fmt::format("offset {} of {} is {}, but {} has {} values", row, name, offset,
                                 values.name, num_values)};
      }
      before = offset;
    }
  }
  const bool has_end = num_rows == data_->num_samples() + 1;
  if (has_end && before != num_values) {
    return Error{fmt::format("the last offset of {} is {}, but {} has {} values", name, before,
                             values.name, num_values)};
  }
  digest_ = mix_bits(digest_, static_cast<uint64_t>(num_values));
  return Status();
}

Status Feed::add_length(const LengthOption& option, size_t column) {
  const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                  [&](const Input& input) { return input.name == option.input; });
  if (found == inputs_.end()) {
    std::vector<std::string> names;
    for (const Input& input : inputs_) names.push_back(input.name);
    return Error{fmt::format("--lengths {}={}: the model has no input {}; it has {}", option.input,
                             option.column, option.input, fmt::join(names, ", "))};
  }
  std::vector<size_t> dims;
  for (size_t d = 0; d < found->type.sizes.size(); ++d) {
    const bool is_batch = found->layout.cut != InputCut::kShared && d == found->layout.batch_dim;
    if (found->type.sizes[d].is_symbol() && !is_batch) dims.push_back(d);
  }
  if (option.dim.has_value()) {
    std::erase_if(dims, [&](size_t dim) { return dim != *option.dim; });
  }
  if (dims.size() != 1) {
    const std::string which = option.dim.has_value() ? fmt::format("dim {} is none", *option.dim)
                              : dims.empty()
                                  ? "it has none"
                                  : fmt::format("it has {}; say which, as in {}.{}={}", dims.size(),
                                                option.input, dims[0], option.column);
    return Error{fmt::format(
        "--lengths {}={} needs a symbolic dim of the input {} besides the batch, but {}",
        option.input, option.column, to_text(found->type), which)};
  }
  Length length{.symbol = found->type.sizes[dims[0]].name,
                .option = fmt::format("{}={}", option.input, option.column),
                .column = column};
  for (const Length& other : lengths_) {
    if (other.symbol != length.symbol) continue;
    return Error{fmt::format(
        "--lengths {}: --lengths {} says the lengths of the size {}, which is the same one; leave "
        "one of them out",
        length.option, other.option, length.symbol)};
  }
  TRIREME_TRY(check_lengths(option, length));
  lengths_.push_back(std::move(length));
  return Status();
}

// What is cropped stays within the sizes that the model was exported for; the rest has to fit.
Status Feed::check_bounds(const Graph& graph) {
  SymbolValues longest = symbols_;
  for (Length& length : lengths_) {
    const auto bounds = graph.size_bounds.find(length.symbol);
    if (bounds != graph.size_bounds.end())
      length.least = std::max<int64_t>(1, bounds->second.least);
    longest[length.symbol] = cropped(length, length.longest);
  }
  return check_row_sizes(graph, longest);
}

int64_t Feed::cropped(const Length& length, int64_t longest) const {
  return std::min(std::max(longest, length.least), symbols_.at(length.symbol));
}

Status Feed::check_lengths(const LengthOption& option, Length& length) {
  const int64_t most = symbols_.at(length.symbol);
  for (int64_t first = 0; first < num_samples(); first += kRowsAtOnce) {
    const int64_t end = std::min(num_samples(), first + kRowsAtOnce);
    TRIREME_TRY(const std::vector<int64_t> lengths,
                read_integers(length.column, counted_from(first, end)));
    for (size_t i = 0; i < lengths.size(); ++i) {
      digest_ = mix_bits(digest_, static_cast<uint64_t>(lengths[i]));
      length.longest = std::max(length.longest, lengths[i]);
      if (lengths[i] >= 0 && lengths[i] <= most) continue;
      return Error{fmt::format("{} gives sample {} the length {}, but {} has room for 0 to {}",
                               option.column, first + static_cast<int64_t>(i), lengths[i],
                               option.input, most)};
    }
  }
  return Status();
}

Result<SymbolValues> Feed::step_symbols(std::span<const uint64_t> samples) const {
  SymbolValues symbols = symbols_;
  for (const Length& length : lengths_) {
    TRIREME_TRY(const std::vector<int64_t> lengths, read_integers(length.column, samples));
    int64_t longest = 0;
    for (const int64_t each : lengths) longest = std::max(longest, each);
    symbols[length.symbol] = cropped(length, longest);
  }
  return symbols;
}

Result<SymbolValues> Feed::micro_batch_symbols(const SymbolValues& step,
                                               std::span<const uint64_t> samples) const {
  SymbolValues symbols = step;
  symbols[batch_] = static_cast<int64_t>(samples.size());
  std::map<std::string, std::string> first_user;  // of a symbol that counts values
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.layout.cut != InputCut::kValues) continue;
    TRIREME_TRY(const std::vector<Range> ranges, value_ranges(i, samples));
    uint64_t count = 0;
    for (const Range& range : ranges) count += range.end - range.begin;
    const std::string& symbol = input.type.sizes[0].name;
    const std::string& first = first_user.try_emplace(symbol, input.name).first->second;
    if (first == input.name) {
      symbols[symbol] = static_cast<int64_t>(count);
    } else if (symbols[symbol] != static_cast<int64_t>(count)) {
      return Error{
          fmt::format("the inputs {} and {} are of one size in the model, but the {} samples from "
                      "{} have {} and {} values there",
                      first, input.name, samples.size(), samples[0], symbols[symbol], count)};
    }
  }
  return symbols;
}

Result<std::vector<Feed::Range>> Feed::value_ranges(size_t index,
                                                    std::span<const uint64_t> samples) const {
  const size_t column = inputs_[index].layout.offsets;
  const auto num_values = static_cast<uint64_t>(data_->num_rows(index));
  const auto num_rows = static_cast<uint64_t>(data_->num_rows(column));
  std::vector<uint64_t> rows;
  rows.reserve(2 * samples.size());
  for (const uint64_t sample : samples) {
    rows.push_back(sample);
    rows.push_back(std::min(sample + 1, num_rows - 1));
  }
  TRIREME_TRY(const std::vector<int64_t> offsets, read_integers(column, rows));
  std::vector<Range> ranges;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto begin = static_cast<uint64_t>(offsets[2 * i]);
    const uint64_t end =
        samples[i] + 1 < num_rows ? static_cast<uint64_t>(offsets[2 * i + 1]) : num_values;
    if (offsets[2 * i] < 0 || begin > end || end > num_values) {
      return Error{
          fmt::format("the offsets of {} have changed since the run began", inputs_[column].name)};
    }
    ranges.push_back({begin, end});
  }
  return ranges;
}

Result<InputTensor> Feed::read(size_t index, std::span<const uint64_t> samples,
                               const SymbolValues& symbols) const {
  const Input& input = inputs_.at(index);
  std::vector<int64_t> sizes;
  for (const SymExpr& size : input.type.sizes) {
    TRIREME_TRY(sizes.emplace_back(), evaluate_integer(size, symbols));
  }
  InputTensor tensor = allocate(std::move(sizes), input.type.dtype);
  switch (input.layout.cut) {
    case InputCut::kRows: {
      const bool is_plain = input.layout.batch_dim == 0 &&
                            row_of(input.layout, tensor.sizes) == data_->row_sizes(index);
      TRIREME_TRY(is_plain ? data_->read_rows(index, samples, bytes_of(tensor))
                           : read_cropped(index, samples, tensor));
      return tensor;
    }
    case InputCut::kShared:
      TRIREME_TRY(read_cropped(index, std::vector<uint64_t>{0}, tensor));
      return tensor;
    case InputCut::kOffsets:
      TRIREME_TRY(read_offsets(index, samples, tensor));
      return tensor;
    case InputCut::kValues:
      break;
  }
  TRIREME_TRY(const std::vector<Range> ranges, value_ranges(index, samples));
  std::vector<uint64_t> rows;
  for (const Range& range : ranges) {
    for (uint64_t row = range.begin; row < range.end; ++row) rows.push_back(row);
  }
  TRIREME_CHECK(static_cast<int64_t>(rows.size()) == tensor.sizes[0], "the values were counted");
  TRIREME_TRY(data_->read_rows(index, rows, bytes_of(tensor)));
  return tensor;
}

// Rows of which only the beginning of each dim is wanted, or whose batch is not in dim 0.
Status Feed::read_cropped(size_t index, std::span<const uint64_t> samples,
                          InputTensor& tensor) const {
  if (tensor.size_bytes == 0) return Status();
  const Input& input = inputs_[index];
  const std::vector<int64_t> stored = data_->row_sizes(index);
  const std::vector<int64_t> wanted = row_of(input.layout, tensor.sizes);
  int64_t last = 0;  // the last element that is wanted of a row
  for (size_t d = 0; d < wanted.size(); ++d) {
    TRIREME_CHECK(wanted[d] <= stored[d], "a size is more than the data has");
    last = last * stored[d] + wanted[d] - 1;
  }
  const auto width = static_cast<size_t>(dtype_info(input.type.dtype).size_bytes);
  const size_t row_bytes = static_cast<size_t>(last + 1) * width;
  std::vector<std::byte> rows(samples.size() * row_bytes);
  TRIREME_TRY(data_->read_rows(index, samples, rows));
  // [outer, sample, inner] of the micro-batch; the elements of a row count outer x inner.
  int64_t inner = 1;
  const size_t batch_dim = input.layout.cut == InputCut::kShared ? 0 : input.layout.batch_dim;
  for (size_t d = batch_dim; d < wanted.size(); ++d) inner *= wanted[d];
  const auto num_samples = static_cast<int64_t>(samples.size());
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    const std::byte* row = rows.data() + static_cast<size_t>(sample) * row_bytes;
    for_each_run(stored, wanted, [&](int64_t from, int64_t to, int64_t count) {
      // A run may go over several places of the batch when the batch is the last dim.
      for (int64_t done = 0; done < count;) {
        const int64_t outer = (to + done) / inner;
        const int64_t within = (to + done) % inner;
        const int64_t length = std::min(count - done, inner - within);
        const int64_t place = (outer * num_samples + sample) * inner + within;
        std::memcpy(tensor.memory.get() + static_cast<size_t>(place) * width,
                    row + static_cast<size_t>(from + done) * width,
                    static_cast<size_t>(length) * width);
        done += length;
      }
    });
  }
  return Status();
}

Status Feed::read_offsets(size_t index, std::span<const uint64_t> samples,
                          InputTensor& tensor) const {
  // All values that are cut by these offsets have the same ranges.
  const auto values = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& input) {
    return input.layout.cut == InputCut::kValues && input.layout.offsets == index;
  });
  TRIREME_CHECK(values != inputs_.end(), "offsets belong to values");
  TRIREME_TRY(const std::vector<Range> ranges,
              value_ranges(static_cast<size_t>(values - inputs_.begin()), samples));
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Range& range : ranges) {
    offsets.push_back(end);
    end += static_cast<int64_t>(range.end - range.begin);
  }
  if (inputs_[index].layout.says_end) offsets.push_back(end);
  const Status status = convert_numbers(std::as_bytes(std::span(offsets)), DType::kInt64,
                                        bytes_of(tensor), inputs_[index].type.dtype);
  if (status.ok()) return Status();
  return Error{fmt::format("the offsets {} of a micro-batch: {}; use smaller micro-batches",
                           inputs_[index].name, status.error().message)};
}

}  // namespace trireme
