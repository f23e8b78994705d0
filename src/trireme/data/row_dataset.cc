#include "trireme/data/row_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/conversion.h"

namespace trireme {
namespace {

class RowDataset : public Dataset {
 public:
  RowDataset(std::vector<RowTensor> tensors, std::vector<InputSpec> inputs)
      : tensors_(std::move(tensors)), inputs_(std::move(inputs)) {}

  int64_t num_samples() const override { return tensors_[0].tensor.sizes[0]; }

  std::vector<int64_t> row_sizes(size_t index) const override {
    TRIREME_CHECK(index < tensors_.size(), "the input is one of the model's");
    const std::vector<int64_t>& sizes = tensors_[index].tensor.sizes;
    return {sizes.begin() + 1, sizes.end()};
  }

  Status read_rows(size_t index, std::span<const uint64_t> samples,
                   std::span<std::byte> out) const override {
    TRIREME_CHECK(index < tensors_.size(), "the input is one of the model's");
    const RowTensor& source = tensors_[index];
    const InputSpec& input = inputs_[index];
    const size_t row_bytes = source.tensor.bytes.size() / static_cast<size_t>(num_samples());
    const size_t out_row_bytes = row_bytes / width(source.tensor.dtype) * width(input.dtype);
    TRIREME_CHECK(out.size() == samples.size() * out_row_bytes, "the rows fill the output");
    for (size_t i = 0; i < samples.size(); ++i) {
      TRIREME_CHECK(samples[i] < static_cast<uint64_t>(num_samples()), "the sample is in the data");
      const Status status = convert_numbers(
          source.tensor.bytes.subspan(samples[i] * row_bytes, row_bytes), source.tensor.dtype,
          out.subspan(i * out_row_bytes, out_row_bytes), input.dtype);
      if (!status.ok()) {
        return Error{fmt::format("{}: sample {} does not suit the input {}: {}", source.name,
                                 samples[i], input.name, status.error().message)};
      }
    }
    return Status();
  }

 private:
  static size_t width(DType dtype) { return static_cast<size_t>(dtype_info(dtype).size_bytes); }

  std::vector<RowTensor> tensors_;  // by input
  std::vector<InputSpec> inputs_;
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
  const TensorView& tensor = source.tensor;
  if (tensor.sizes.empty()) {
    return Error{fmt::format("{} is a scalar, but the input {} needs a row a sample", source.name,
                             input.name)};
  }
  bool is_alike = tensor.sizes.size() == input.sizes.size() + 1;
  for (size_t i = 0; is_alike && i < input.sizes.size(); ++i) {
    is_alike = input.sizes[i].value_or(tensor.sizes[i + 1]) == tensor.sizes[i + 1];
  }
  if (!is_alike) {
    const std::vector<std::optional<int64_t>> row(tensor.sizes.begin() + 1, tensor.sizes.end());
    return Error{fmt::format("{} has rows of sizes {}, but the input {} takes {}", source.name,
                             to_text(row), input.name, to_text(input.sizes))};
  }
  if (!is_convertible(tensor.dtype, input.dtype)) {
    return Error{fmt::format("{} is of {}, but the input {} takes {}; convert the data",
                             source.name, dtype_info(tensor.dtype).name, input.name,
                             dtype_info(input.dtype).name)};
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_row_dataset(const SourceRequest& request,
                                                  std::vector<RowTensor> tensors) {
  TRIREME_CHECK(tensors.size() == request.inputs.size(), "each input has a tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TRIREME_TRY(verify_row(tensors[i], request.inputs[i]));
    if (tensors[i].tensor.sizes[0] != tensors[0].tensor.sizes[0]) {
      return Error{fmt::format("{} has {} rows, but {} has {}", tensors[i].name,
                               tensors[i].tensor.sizes[0], tensors[0].name,
                               tensors[0].tensor.sizes[0])};
    }
  }
  if (tensors[0].tensor.sizes[0] == 0) {
    return Error{fmt::format("{} has no rows", tensors[0].name)};
  }
  return std::unique_ptr<Dataset>(std::make_unique<RowDataset>(std::move(tensors), request.inputs));
}

}  // namespace trireme
