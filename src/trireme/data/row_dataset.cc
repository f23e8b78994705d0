#include "trireme/data/row_dataset.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/conversion.h"

namespace trireme {
namespace {

size_t width(DType dtype) { return static_cast<size_t>(dtype_info(dtype).size_bytes); }

// Rows that follow each other are read at once, up to this much.
constexpr size_t kMaxReadBytes = size_t{1} << 20;

class RowDataset : public Dataset {
 public:
  RowDataset(std::vector<RowTensor> tensors, std::vector<InputSpec> inputs, int64_t num_samples)
      : tensors_(std::move(tensors)), inputs_(std::move(inputs)), num_samples_(num_samples) {}

  int64_t num_samples() const override { return num_samples_; }

  int64_t num_rows(size_t index) const override {
    TRIREME_CHECK(index < tensors_.size(), "the input is one of the model's");
    return inputs_[index].cut == InputCut::kShared ? 1 : tensors_[index].sizes[0];
  }

  std::vector<int64_t> row_sizes(size_t index) const override {
    TRIREME_CHECK(index < tensors_.size(), "the input is one of the model's");
    const std::vector<int64_t>& sizes = tensors_[index].sizes;
    return {sizes.begin() + (inputs_[index].cut == InputCut::kShared ? 0 : 1), sizes.end()};
  }

  Status read_rows(size_t index, std::span<const uint64_t> rows,
                   std::span<std::byte> out) const override {
    if (rows.empty() || out.empty()) return Status();
    const RowTensor& source = tensors_.at(index);
    const DType dtype = inputs_[index].dtype;
    size_t row_elements = 1;
    for (const int64_t size : row_sizes(index)) row_elements *= static_cast<size_t>(size);
    const size_t elements = out.size() / rows.size() / width(dtype);
    TRIREME_CHECK(out.size() == rows.size() * elements * width(dtype) && elements <= row_elements,
                  "the rows fill the output");
    // A bool is checked even where it is one already.
    const bool is_converted = source.dtype != dtype || dtype == DType::kBool;
    const size_t row_bytes = row_elements * width(source.dtype);
    const size_t read_bytes = elements * width(source.dtype);
    const size_t most = elements == row_elements
                            ? std::max<size_t>(1, kMaxReadBytes / std::max<size_t>(1, read_bytes))
                            : 1;
    std::vector<std::byte> raw;
    for (size_t first = 0; first < rows.size();) {
      size_t count = 1;
      while (first + count < rows.size() && count < most &&
             rows[first + count] == rows[first] + count) {
        ++count;
      }
      TRIREME_CHECK(rows[first] + count <= static_cast<uint64_t>(num_rows(index)),
                    "the row is in the data");
      const std::span<std::byte> place =
          out.subspan(first * elements * width(dtype), count * elements * width(dtype));
      if (is_converted) raw.resize(count * read_bytes);
      TRIREME_TRY(source.file.read(source.position + rows[first] * row_bytes,
                                   is_converted ? std::span(raw) : place));
      if (is_converted) TRIREME_TRY(convert(index, rows.subspan(first, count), raw, place));
      first += count;
    }
    return Status();
  }

 private:
  Status convert(size_t index, std::span<const uint64_t> rows, std::span<const std::byte> raw,
                 std::span<std::byte> out) const {
    const RowTensor& source = tensors_[index];
    const size_t raw_bytes = raw.size() / rows.size();
    const size_t out_bytes = out.size() / rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      const Status status =
          convert_numbers(raw.subspan(i * raw_bytes, raw_bytes), source.dtype,
                          out.subspan(i * out_bytes, out_bytes), inputs_[index].dtype);
      if (status.ok()) continue;
      const bool is_sample = inputs_[index].cut == InputCut::kRows;
      return Error{fmt::format("{}: {} {} does not suit the input {}: {}", source.name,
                               is_sample ? "sample" : "row", rows[i], inputs_[index].name,
                               status.error().message)};
    }
    return Status();
  }

  std::vector<RowTensor> tensors_;  // by input
  std::vector<InputSpec> inputs_;
  int64_t num_samples_;
};

// The sizes of a row as text, "*" where any size will do.
std::string to_text(const std::vector<std::optional<int64_t>>& sizes) {
  std::vector<std::string> texts;
  for (const std::optional<int64_t>& size : sizes) {
    texts.push_back(size.has_value() ? fmt::format("{}", *size) : "*");
  }
  return fmt::format("[{}]", fmt::join(texts, ","));
}

Status verify_row(const RowTensor& source, const InputSpec& input) {
  const bool is_shared = input.cut == InputCut::kShared;
  if (source.sizes.empty() && !is_shared) {
    return Error{fmt::format("{} is a scalar, but the input {} needs a row a sample", source.name,
                             input.name)};
  }
  const std::vector<std::optional<int64_t>> row(source.sizes.begin() + (is_shared ? 0 : 1),
                                                source.sizes.end());
  bool is_alike = row.size() == input.sizes.size();
  for (size_t i = 0; is_alike && i < input.sizes.size(); ++i) {
    is_alike = input.sizes[i].value_or(*row[i]) == *row[i];
  }
  if (!is_alike) {
    return Error{fmt::format("{} has {} {}, but the input {} takes {}{}", source.name,
                             is_shared ? "the sizes" : "rows of sizes", to_text(row), input.name,
                             to_text(input.sizes),
                             is_shared ? "; it has no batch and is given once" : "")};
  }
  if (!is_convertible(source.dtype, input.dtype)) {
    return Error{fmt::format("{} is of {}, but the input {} takes {}; convert the data",
                             source.name, dtype_info(source.dtype).name, input.name,
                             dtype_info(input.dtype).name)};
  }
  return Status();
}

// From the inputs with a row a sample; where all are jagged, from offsets in the model's form.
Result<int64_t> count_samples(const std::vector<RowTensor>& tensors,
                              const std::vector<InputSpec>& inputs) {
  const RowTensor* first = nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (inputs[i].cut != InputCut::kRows) continue;
    if (first == nullptr) first = &tensors[i];
    if (tensors[i].sizes[0] == first->sizes[0]) continue;
    return Error{fmt::format("{} has {} rows, but {} has {}", tensors[i].name, tensors[i].sizes[0],
                             first->name, first->sizes[0])};
  }
  std::optional<int64_t> count;
  if (first != nullptr) count = first->sizes[0];
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (inputs[i].cut != InputCut::kOffsets) continue;
    const int64_t rows = tensors[i].sizes[0];
    if (!count.has_value()) {
      first = &tensors[i];
      count = std::max<int64_t>(0, rows - (inputs[i].says_end ? 1 : 0));
    }
    if (rows == *count || rows == *count + 1) continue;
    return Error{
        fmt::format("{} has {} offsets, but {} has {} samples; give one for each sample, and at "
                    "most one more for the end",
                    tensors[i].name, rows, first->name, *count)};
  }
  if (count.value_or(0) == 0) {
    return Error{fmt::format("{} has no rows", first == nullptr ? tensors[0].name : first->name)};
  }
  return *count;
}

}  // namespace

Result<RowTensor> row_tensor(std::string name, const MappedFile& mapped, const TensorView& tensor) {
  TRIREME_TRY(PositionedFile file, PositionedFile::open(mapped.path()));
  const auto position = tensor.bytes.empty() ? 0 : tensor.bytes.data() - mapped.bytes().data();
  return RowTensor{.name = std::move(name),
                   .file = std::move(file),
                   .position = static_cast<uint64_t>(position),
                   .dtype = tensor.dtype,
                   .sizes = tensor.sizes};
}

Result<std::unique_ptr<Dataset>> open_row_dataset(const SourceRequest& request,
                                                  std::vector<RowTensor> tensors) {
  TRIREME_CHECK(tensors.size() == request.inputs.size(), "each input has a tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TRIREME_TRY(verify_row(tensors[i], request.inputs[i]));
  }
  TRIREME_TRY(const int64_t num_samples, count_samples(tensors, request.inputs));
  return std::unique_ptr<Dataset>(
      std::make_unique<RowDataset>(std::move(tensors), request.inputs, num_samples));
}

}  // namespace trireme
