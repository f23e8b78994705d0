#include "trireme/data/row_dataset.h"

#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/data/dataset.h"
#include "trireme/data/npy_text.h"
#include "trireme/import/safetensors.h"
#include "trireme/import/safetensors_writer.h"
#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, TensorView>>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, view] : tensors) entries.push_back({name, view.dtype, view.sizes});
  TRIREME_TRY(SafetensorsWriter writer, SafetensorsWriter::create(path, entries));
  for (const auto& [name, view] : tensors) TRIREME_TRY(writer.append(view.bytes));
  return writer.commit();
}

const InputSpec kX{.name = "x", .dtype = DType::kFloat32, .sizes = {2}};
const InputSpec kY{.name = "y", .dtype = DType::kInt64, .sizes = {}};

std::string refusal(const std::string& spec, const std::vector<InputSpec>& inputs) {
  const Result<std::unique_ptr<Dataset>> dataset = open_dataset(spec, inputs, std::nullopt);
  return dataset.ok() ? "accepted" : dataset.error().message;
}

std::unique_ptr<Dataset> open(const std::string& spec, const std::vector<InputSpec>& inputs) {
  Result<std::unique_ptr<Dataset>> dataset = open_dataset(spec, inputs, std::nullopt);
  EXPECT_TRUE(dataset.ok()) << dataset.error().message;
  return std::move(dataset).value();
}

template <typename T>
std::vector<T> read(const Dataset& dataset, size_t index, const std::vector<uint64_t>& samples) {
  size_t count = samples.size();
  for (const int64_t size : dataset.row_sizes(index)) count *= static_cast<size_t>(size);
  std::vector<T> numbers(count);
  const Status status =
      dataset.read_rows(index, samples, std::as_writable_bytes(std::span(numbers)));
  EXPECT_TRUE(status.ok()) << status.error().message;
  return numbers;
}

// x of three rows, y of three labels.
struct Arrays {
  ScratchDirectory directory;
  std::string x =
      directory.write("x.npy", npy("<f4", "(3, 2)", bytes_of<float>({0, 1, 2, 3, 4, 5})));
  std::string y = directory.write("y.npy", npy("<i4", "(3,)", bytes_of<int32_t>({7, 8, 9})));
  std::string spec = fmt::format("arrays:{},{}", x, y);
};

TEST(Arrays, FeedTheInputsInTheirOrder) {
  const Arrays arrays;
  const auto dataset = open(arrays.spec, {kX, kY});
  EXPECT_EQ(dataset->num_samples(), 3);
  EXPECT_EQ(dataset->row_sizes(0), (std::vector<int64_t>{2}));
  EXPECT_EQ(dataset->row_sizes(1), (std::vector<int64_t>{}));
  EXPECT_EQ(read<float>(*dataset, 0, {2, 0, 2}), (std::vector<float>{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(read<int64_t>(*dataset, 1, {2, 0}), (std::vector<int64_t>{9, 7}));
}

TEST(Arrays, TakeSymbolicSizesFromTheData) {
  const Arrays arrays;
  const InputSpec x{.name = "x", .dtype = DType::kFloat32, .sizes = {std::nullopt}};
  EXPECT_EQ(open(arrays.spec, {x, kY})->row_sizes(0), (std::vector<int64_t>{2}));
}

TEST(Arrays, FeedRowsWithoutElements) {
  const ScratchDirectory directory;
  const std::string x = directory.write("x.npy", npy("<f4", "(3, 0)", ""));
  const InputSpec input{.name = "x", .dtype = DType::kFloat32, .sizes = {std::nullopt}};
  const auto dataset = open("arrays:" + x, {input});
  EXPECT_EQ(dataset->num_samples(), 3);
  EXPECT_EQ(read<float>(*dataset, 0, {0, 2}), (std::vector<float>{}));
}

TEST(Arrays, RefuseAnotherNumberOfArraysThanInputs) {
  const Arrays arrays;
  EXPECT_EQ(refusal("arrays:" + arrays.x, {kX, kY}),
            "arrays:" + arrays.x + " gives 1 arrays, but the model has 2 inputs: x, y");
  EXPECT_EQ(refusal("arrays:", {kX}), "the data 'arrays:' names an empty path");
}

TEST(Arrays, RefuseUnlikeNumbersOfRowsAndNone) {
  const Arrays arrays;
  const std::string y =
      arrays.directory.write("four.npy", npy("<i8", "(4,)", bytes_of<int64_t>({1, 2, 3, 4})));
  EXPECT_EQ(refusal(fmt::format("arrays:{},{}", arrays.x, y), {kX, kY}),
            fmt::format("{} has 4 rows, but {} has 3", y, arrays.x));
  const std::string none = arrays.directory.write("none.npy", npy("<f4", "(0, 2)", ""));
  EXPECT_EQ(refusal("arrays:" + none, {kX}), none + " has no rows");
  const std::string scalar = arrays.directory.write("scalar.npy", npy("<f4", "()", "1234"));
  EXPECT_EQ(refusal("arrays:" + scalar, {kX}),
            scalar + " is a scalar, but the input x needs a row a sample");
}

TEST(Arrays, RefuseRowsUnlikeTheInput) {
  const Arrays arrays;
  const InputSpec wide{.name = "x", .dtype = DType::kFloat32, .sizes = {3}};
  EXPECT_EQ(refusal(arrays.spec, {wide, kY}),
            arrays.x + " has rows of sizes [2], but the input x takes [3]");
  const InputSpec deep{.name = "x", .dtype = DType::kFloat32, .sizes = {2, std::nullopt}};
  EXPECT_EQ(refusal(arrays.spec, {deep, kY}),
            arrays.x + " has rows of sizes [2], but the input x takes [2,*]");
}

TEST(Arrays, RefuseOtherDTypesThanTheInputsButIntegers) {
  const Arrays arrays;
  const InputSpec x64{.name = "x", .dtype = DType::kFloat64, .sizes = {2}};
  EXPECT_EQ(refusal(arrays.spec, {x64, kY}),
            arrays.x + " is of f32, but the input x takes f64; convert the data");
  const InputSpec flag{.name = "y", .dtype = DType::kBool, .sizes = {}};
  EXPECT_EQ(refusal(arrays.spec, {kX, flag}),
            arrays.y + " is of i32, but the input y takes bool; convert the data");
}

TEST(Arrays, RefuseANumberThatDoesNotFitTheInput) {
  const ScratchDirectory directory;
  const std::string y =
      directory.write("y.npy", npy("<i8", "(3,)", bytes_of<int64_t>({1, 300, -1})));
  const InputSpec small{.name = "y", .dtype = DType::kUint8, .sizes = {}};
  const auto dataset = open("arrays:" + y, {small});
  std::vector<std::byte> row(1);
  EXPECT_TRUE(dataset->read_rows(0, std::vector<uint64_t>{0}, row).ok());
  EXPECT_EQ(dataset->read_rows(0, std::vector<uint64_t>{1}, row).error().message,
            y + ": sample 1 does not suit the input y: 300 does not fit u8 (0 to 255)");
}

TEST(Safetensors, FeedTheInputsByTheirNames) {
  const ScratchDirectory directory;
  const std::string path = directory.path("data.safetensors");
  const std::vector<int32_t> y{7, 8, 9};
  const std::vector<float> x{0, 1, 2, 3, 4, 5};
  const std::vector<uint8_t> mask{0, 1, 1};
  ASSERT_TRUE(
      write_safetensors(path, {{"y", {DType::kInt32, {3}, std::as_bytes(std::span(y))}},
                               {"mask", {DType::kUint8, {3}, std::as_bytes(std::span(mask))}},
                               {"x", {DType::kFloat32, {3, 2}, std::as_bytes(std::span(x))}}})
          .ok());
  const InputSpec flag{.name = "mask", .dtype = DType::kBool, .sizes = {}};
  const auto dataset = open("safetensors:" + path, {kX, kY, flag});
  EXPECT_EQ(dataset->num_samples(), 3);
  EXPECT_EQ(read<float>(*dataset, 0, {1, 0}), (std::vector<float>{2, 3, 0, 1}));
  EXPECT_EQ(read<int64_t>(*dataset, 1, {2, 0}), (std::vector<int64_t>{9, 7}));
  EXPECT_EQ(read<uint8_t>(*dataset, 2, {0, 2}), (std::vector<uint8_t>{0, 1}));

  const InputSpec other{.name = "labels", .dtype = DType::kInt64, .sizes = {}};
  EXPECT_EQ(refusal("safetensors:" + path, {kX, other}),
            path + " has no tensor for the input labels; it has mask, x, y");
  const InputSpec wide{.name = "x", .dtype = DType::kFloat32, .sizes = {3}};
  EXPECT_EQ(refusal("safetensors:" + path, {wide}),
            "tensor x of " + path + " has rows of sizes [2], but the input x takes [3]");
  EXPECT_EQ(refusal("safetensors:", {kX}), "the data 'safetensors:' names an empty path");
}

TEST(Safetensors, RefuseAFileWithoutTensors) {
  const ScratchDirectory directory;
  const std::string path = directory.path("data.safetensors");
  ASSERT_TRUE(write_safetensors(path, {}).ok());
  EXPECT_EQ(refusal("safetensors:" + path, {kX}),
            path + " has no tensor for the input x; it has none");
}

}  // namespace
}  // namespace trireme
