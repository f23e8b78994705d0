// random:N: samples that nobody has to have, for a trial of the speed of a model.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/philox.h"
#include "trireme/data/conversion.h"
#include "trireme/data/sources.h"

namespace trireme {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 40;

// A float of the dtype from 1/2 to 1, or with its 24 bits from 0 to 1.
uint64_t float_bits(DType dtype, uint64_t random) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x3800 | (random & 0x3ff);
    case DType::kBFloat16:
      return 0x3f00 | (random & 0x7f);
    case DType::kFloat64:
    case DType::kComplex128: {
      const double number = static_cast<double>(random >> 11) * 0x1p-53;
      uint64_t bits = 0;
      std::memcpy(&bits, &number, sizeof(number));
      return bits;
    }
    default: {
      const float number = static_cast<float>(random >> 40) * 0x1p-24F;
      uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof(number));
      return bits;
    }
  }
}

int64_t most_of(DType dtype) {
  const int32_t bits = 8 * dtype_info(dtype).size_bytes - 1;  // a sign, or one to spare
  return bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
}

class RandomDataset : public Dataset {
 public:
  RandomDataset(std::vector<InputSpec> inputs, std::vector<std::vector<int64_t>> sizes,
                int64_t num_samples)
      : inputs_(std::move(inputs)), sizes_(std::move(sizes)), num_samples_(num_samples) {}

  int64_t num_samples() const override { return num_samples_; }
  int64_t num_rows(size_t index) const override {
    return inputs_.at(index).cut == InputCut::kShared ? 1 : num_samples_;
  }
  std::vector<int64_t> row_sizes(size_t index) const override { return sizes_.at(index); }

  Status read_rows(size_t index, std::span<const uint64_t> rows,
                   std::span<std::byte> out) const override {
    if (rows.empty() || out.empty()) return Status();
    const InputSpec& input = inputs_.at(index);
    const bool is_complex = input.dtype == DType::kComplex64 || input.dtype == DType::kComplex128;
    const size_t width =
        static_cast<size_t>(dtype_info(input.dtype).size_bytes) / (is_complex ? 2 : 1);
    const size_t numbers = out.size() / rows.size() / width;
    std::byte* place = out.data();
    for (const uint64_t row : rows) {
      const uint64_t key = mix_bits(index, row);
      for (size_t i = 0; i < numbers; ++i, place += width) {
        const uint64_t bits = number(input, mix_bits(key, i));
        std::memcpy(place, &bits, width);  // little-endian
      }
    }
    return Status();
  }

 private:
  static uint64_t number(const InputSpec& input, uint64_t random) {
    if (input.dtype == DType::kBool) return 1;
    if (!is_integer(input.dtype)) return float_bits(input.dtype, random);
    const int64_t below = std::min(input.below.value_or(1), most_of(input.dtype));
    return random % static_cast<uint64_t>(std::max<int64_t>(below, 1));
  }

  std::vector<InputSpec> inputs_;
  std::vector<std::vector<int64_t>> sizes_;  // of rows
  int64_t num_samples_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_random(const SourceRequest& request) {
  int64_t num_samples = 0;
  const char* end = request.rest.data() + request.rest.size();
  const auto [stop, code] = std::from_chars(request.rest.data(), end, num_samples);
  if (code != std::errc() || stop != end || num_samples < 1 || num_samples > kMaxSamples) {
    return Error{fmt::format("the data '{}' is to be random:N, with a number of samples from 1",
                             request.spec)};
  }
  std::vector<std::vector<int64_t>> sizes;
  for (const InputSpec& input : request.inputs) {
    if (input.is_column || input.cut == InputCut::kValues || input.cut == InputCut::kOffsets) {
      return Error{fmt::format("{} has no lengths or offsets for {}; give data of your own",
                               request.spec, input.name)};
    }
    std::vector<int64_t>& row = sizes.emplace_back(input.example_sizes);
    row.resize(input.sizes.size(), 1);
    for (size_t d = 0; d < row.size(); ++d) {
      row[d] = input.sizes[d].value_or(request.seq_len.value_or(row[d]));
    }
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<RandomDataset>(request.inputs, std::move(sizes), num_samples));
}

}  // namespace trireme
