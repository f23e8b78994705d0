#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/data/dataset.h"

namespace trireme {
namespace {

const InputSpec kTokens{.name = "tokens",
                        .dtype = DType::kInt64,
                        .sizes = {std::nullopt},
                        .example_sizes = {5},
                        .below = 3};
const InputSpec kX{.name = "x", .dtype = DType::kFloat32, .sizes = {2, 4}, .example_sizes = {2, 4}};

Result<std::unique_ptr<Dataset>> open(const std::string& spec, std::vector<InputSpec> inputs,
                                      std::optional<int64_t> seq_len = {}) {
  return open_dataset(spec, std::move(inputs), seq_len);
}

template <typename T>
std::vector<T> read(const Dataset& dataset, size_t index, const std::vector<uint64_t>& rows,
                    size_t numbers) {
  std::vector<T> out(numbers);
  EXPECT_TRUE(dataset.read_rows(index, rows, std::as_writable_bytes(std::span(out))).ok());
  return out;
}

TEST(RandomSource, HasTheSizesOfTheExportAndNumbersThatTheModelCanLookUp) {
  const auto dataset = open("random:4", {kTokens, kX}).value();
  EXPECT_EQ(dataset->num_samples(), 4);
  EXPECT_EQ(dataset->row_sizes(0), std::vector<int64_t>{5});
  EXPECT_EQ(dataset->row_sizes(1), (std::vector<int64_t>{2, 4}));
  const std::vector<uint64_t> rows = {2, 0};
  const auto tokens = read<int64_t>(*dataset, 0, rows, 10);
  EXPECT_EQ(std::ranges::max(tokens), 2);
  EXPECT_EQ(std::ranges::min(tokens), 0);
  const auto x = read<float>(*dataset, 1, rows, 16);
  EXPECT_TRUE(std::ranges::all_of(x, [](float v) { return v >= 0 && v < 1; }));
  EXPECT_NE(x.front(), x.back());
  EXPECT_EQ(tokens, read<int64_t>(*dataset, 0, rows, 10));
}

TEST(RandomSource, TakesALengthForSizesThatAreOpen) {
  EXPECT_EQ(open("random:4", {kTokens}, 9).value()->row_sizes(0), std::vector<int64_t>{9});
}

TEST(RandomSource, RefusesWhatItCannotMakeUp) {
  EXPECT_EQ(open("random:", {kX}).error().message,
            "the data 'random:' is to be random:N, with a number of samples from 1");
  EXPECT_EQ(open("random:0", {kX}).error().message,
            "the data 'random:0' is to be random:N, with a number of samples from 1");
  InputSpec values = kX;
  values.cut = InputCut::kValues;
  EXPECT_EQ(open("random:2", {values}).error().message,
            "random:2 has no lengths or offsets for x; give data of your own");
}

}  // namespace
}  // namespace trireme
