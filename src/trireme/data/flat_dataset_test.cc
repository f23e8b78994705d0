#include "trireme/data/flat_dataset.h"

#include <cstring>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/data/dataset.h"
#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

InputSpec matrix(std::optional<int64_t> length, DType dtype = DType::kInt64) {
  return {.name = "idx", .dtype = dtype, .sizes = {length}};
}

std::unique_ptr<Dataset> open(const std::string& spec, const InputSpec& input,
                              std::optional<int64_t> seq_len = std::nullopt) {
  Result<std::unique_ptr<Dataset>> dataset = open_dataset(spec, {input}, seq_len);
  EXPECT_TRUE(dataset.ok()) << dataset.error().message;
  return std::move(dataset).value();
}

std::string refusal(const std::string& spec, const std::vector<InputSpec>& inputs,
                    std::optional<int64_t> seq_len = std::nullopt) {
  const Result<std::unique_ptr<Dataset>> dataset = open_dataset(spec, inputs, seq_len);
  return dataset.ok() ? "accepted" : dataset.error().message;
}

template <typename T>
std::vector<T> read(const Dataset& dataset, const std::vector<uint64_t>& samples) {
  std::vector<T> numbers(samples.size() * static_cast<size_t>(dataset.row_sizes(0)[0]));
  const Status status = dataset.read_rows(0, samples, std::as_writable_bytes(std::span(numbers)));
  EXPECT_TRUE(status.ok()) << status.error().message;
  return numbers;
}

// The sample as text, for bytes.
std::string text(const Dataset& dataset, uint64_t sample) {
  const std::vector<uint8_t> bytes = read<uint8_t>(dataset, {sample});
  return {bytes.begin(), bytes.end()};
}

TEST(Bytes, CutsAFileIntoSamplesAndLeavesTheRestOut) {
  const ScratchDirectory directory;
  const std::string path = directory.write("a.txt", "abcdefghij");
  const auto dataset = open("bytes:" + path, matrix(4));
  EXPECT_EQ(dataset->num_samples(), 2);
  EXPECT_EQ(dataset->row_sizes(0), (std::vector<int64_t>{4}));
  EXPECT_EQ(read<int64_t>(*dataset, {1, 0}),
            (std::vector<int64_t>{'e', 'f', 'g', 'h', 'a', 'b', 'c', 'd'}));
}

TEST(Bytes, JoinsFilesInTheOrderGivenSoThatASampleMaySpanThem) {
  const ScratchDirectory directory;
  const std::string b = directory.write("b", "bbb");
  const std::string empty = directory.write("empty", "");
  const std::string a = directory.write("a", "aa");
  const std::string c = directory.write("c", "ccccc");
  const auto dataset =
      open(fmt::format("bytes:{},{},{},{}", b, empty, a, c), matrix(8, DType::kUint8));
  EXPECT_EQ(dataset->num_samples(), 1);
  EXPECT_EQ(text(*dataset, 0), "bbbaaccc");
  const auto pairs =
      open(fmt::format("bytes:{},{},{},{}", b, empty, a, c), matrix(2, DType::kUint8));
  EXPECT_EQ(pairs->num_samples(), 5);
  EXPECT_EQ(text(*pairs, 1) + text(*pairs, 2) + text(*pairs, 4), "baaccc");
}

TEST(Bytes, WalksDirectoriesDeepInTheOrderOfPaths) {
  const ScratchDirectory directory;
  directory.write("data/b.txt", "2");
  directory.write("data/a/z.txt", "1");
  directory.write("data/a/deep/er/y.txt", "0");
  directory.write("data/c/x.txt", "3");
  directory.write("data/empty.txt", "");
  directory.write("elsewhere/far.txt", "never");
  fs::create_directory(directory.path("data/hollow"));
  fs::create_symlink(directory.write("linked.txt", "4"), directory.path("data/d.txt"));
  fs::create_directory_symlink(directory.path("elsewhere"), directory.path("data/far"));
  fs::create_directory_symlink("..", directory.path("data/a/circle"));
  fs::create_symlink("nowhere", directory.path("data/dangling"));
  const auto dataset =
      open("bytes:" + directory.path("data"), matrix(std::nullopt, DType::kUint8), 5);
  EXPECT_EQ(dataset->num_samples(), 1);
  EXPECT_EQ(text(*dataset, 0), "01234");
}

TEST(Bytes, ReadsADirectoryOfMoreFilesThanItOpensAtOnceFromManyThreads) {
  const ScratchDirectory directory;
  std::string all;
  for (int i = 0; i < 600; ++i) {
    const std::string number = fmt::format("{:04}", i);
    directory.write("many/" + number, number);
    all += number;
  }
  const auto dataset = open("bytes:" + directory.path("many"), matrix(6, DType::kUint8));
  ASSERT_EQ(dataset->num_samples(), 400);
  std::vector<std::jthread> readers;
  for (uint64_t reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&, reader] {
      for (uint64_t i = 0; i < 400; ++i) {
        const uint64_t sample = (i * 7 + reader * 100) % 400;
        EXPECT_EQ(text(*dataset, sample), all.substr(sample * 6, 6));
      }
    });
  }
}

TEST(Bytes, RefuseWhatCannotBeRead) {
  const ScratchDirectory directory;
  const std::string missing = directory.path("missing");
  EXPECT_EQ(refusal("bytes:" + missing, {matrix(4)}),
            "cannot open " + missing + ": No such file or directory");
  fs::create_symlink("loop", directory.path("loop"));
  EXPECT_EQ(refusal("bytes:" + directory.path("loop"), {matrix(4)}),
            "cannot open " + directory.path("loop") + ": Too many levels of symbolic links");
  EXPECT_EQ(refusal("bytes:/dev/null", {matrix(4)}), "/dev/null is not a regular file");
  EXPECT_EQ(refusal("bytes:", {matrix(4)}), "the data 'bytes:' names an empty path");
  EXPECT_EQ(refusal("bytes:a,,b", {matrix(4)}), "the data 'bytes:a,,b' names an empty path");
}

TEST(Bytes, RefuseAFileThatChangedSinceTheRunBegan) {
  const ScratchDirectory directory;
  const std::string path = directory.write("a.txt", "abcdefgh");
  const auto dataset = open("bytes:" + path, matrix(4, DType::kUint8));
  directory.write("a.txt", "abc");
  std::vector<std::byte> row(4);
  const Status status = dataset->read_rows(0, std::vector<uint64_t>{1}, row);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, path + " has 3 bytes now, but had 8 when the run began");
}

TEST(Bytes, RefuseFewerThanOneSample) {
  const ScratchDirectory directory;
  const std::string spec = "bytes:" + directory.write("a.txt", "abc");
  EXPECT_EQ(refusal(spec, {matrix(4)}),
            spec + " has 3 bytes, fewer than the 4 of one sample; give more data");
  EXPECT_EQ(refusal(spec, {matrix(std::nullopt)}, 4),
            spec +
                " has 3 bytes, fewer than the 4 of one sample; give more data or a smaller "
                "--seq-len");
  EXPECT_EQ(refusal(spec, {matrix(std::nullopt)}, INT64_MAX),
            spec +
                " has 3 bytes, fewer than the 9223372036854775807 of one sample; give more data or "
                "a smaller --seq-len");
  EXPECT_EQ(refusal(spec, {matrix(3)}), "accepted");
  fs::create_directory(directory.path("hollow"));
  const std::string hollow = "bytes:" + directory.path("hollow");
  EXPECT_EQ(refusal(hollow, {matrix(4)}),
            hollow + " has 0 bytes, fewer than the 4 of one sample; give more data");
}

TEST(Bytes, TakeTheLengthFromTheModelOrFromSeqLen) {
  const ScratchDirectory directory;
  const std::string spec = "bytes:" + directory.write("a.txt", "abcdefghij");
  EXPECT_EQ(open(spec, matrix(std::nullopt), 5)->num_samples(), 2);
  EXPECT_EQ(open(spec, matrix(5), 5)->num_samples(), 2);
  EXPECT_EQ(refusal(spec, {matrix(std::nullopt)}),
            spec +
                ": the length of the input idx is symbolic, so it does not say how long a sample "
                "is; give --seq-len");
  EXPECT_EQ(refusal(spec, {matrix(4)}, 5),
            "--seq-len is 5, but the input idx has the fixed length 4");
  EXPECT_EQ(refusal(spec, {matrix(std::nullopt)}, 0),
            spec + ": the length of a sample is 0 but must be at least 1");
  EXPECT_EQ(refusal(spec, {matrix(0)}),
            spec + ": the length of a sample is 0 but must be at least 1");
}

TEST(Bytes, RefuseModelsThatTakeAnythingButOneMatrixOfIntegers) {
  const ScratchDirectory directory;
  const std::string spec = "bytes:" + directory.write("a.txt", "abcdefghij");
  EXPECT_EQ(refusal(spec, {matrix(4), {.name = "y", .dtype = DType::kInt64}}),
            spec +
                " feeds models with one input, but this model has 2 (idx, y); use arrays: or "
                "safetensors:");
  EXPECT_EQ(refusal(spec, {matrix(4, DType::kFloat32)}),
            spec +
                " feeds an input of integers [batch, L], but the input idx is of f32 with 2 dims; "
                "use arrays: or safetensors:");
  EXPECT_EQ(refusal(spec, {matrix(4, DType::kBool)}),
            spec +
                " feeds an input of integers [batch, L], but the input idx is of bool with 2 dims; "
                "use arrays: or safetensors:");
  EXPECT_EQ(refusal(spec, {{.name = "idx", .dtype = DType::kInt64, .sizes = {2, 2}}}),
            spec +
                " feeds an input of integers [batch, L], but the input idx is of i64 with 3 dims; "
                "use arrays: or safetensors:");
}

TEST(Bytes, RefuseAByteThatDoesNotFitTheInput) {
  const ScratchDirectory directory;
  const std::string spec = "bytes:" + directory.write("a.txt", "abc\xC8");
  const auto dataset = open(spec, matrix(2, DType::kInt8));
  std::vector<std::byte> row(2);
  EXPECT_TRUE(dataset->read_rows(0, std::vector<uint64_t>{0}, row).ok());
  EXPECT_EQ(dataset->read_rows(0, std::vector<uint64_t>{1}, row).error().message,
            spec + ": sample 1 does not suit the input idx: 200 does not fit i8 (-128 to 127)");
}

TEST(Tokens, ReadsUint16WhenNotSaidAndRefusesPartOfAToken) {
  const ScratchDirectory directory;
  const std::string path = directory.write("t.bin", bytes_of<uint16_t>({1, 2, 3, 65535, 5, 6, 7}));
  for (const std::string& spec : {"tokens:" + path, "tokens:" + path + ":uint16"}) {
    const auto dataset = open(spec, matrix(3));
    EXPECT_EQ(dataset->num_samples(), 2);
    EXPECT_EQ(read<int64_t>(*dataset, {1}), (std::vector<int64_t>{65535, 5, 6}));
  }
  EXPECT_EQ(refusal("tokens:" + path, {matrix(8)}),
            "tokens:" + path + " has 7 tokens, fewer than the 8 of one sample; give more data");
  EXPECT_EQ(refusal("tokens:" + path + ":uint32", {matrix(1)}),
            "tokens:" + path + ":uint32: " + path +
                " has 14 bytes, not a multiple of the 4 of a u32 token");
}

TEST(Tokens, ReadsUint32WhenAsked) {
  const ScratchDirectory directory;
  const std::string path = directory.write("t.bin", bytes_of<uint32_t>({1, 70000, 3, 4}));
  const auto dataset = open("tokens:" + path + ":uint32", matrix(2, DType::kInt32));
  EXPECT_EQ(dataset->num_samples(), 2);
  EXPECT_EQ(read<int32_t>(*dataset, {1, 0}), (std::vector<int32_t>{3, 4, 1, 70000}));
}

TEST(Tokens, RefuseATypeThatIsNotReadButReadFilesWithAColonInTheirNames) {
  const ScratchDirectory directory;
  const std::string spec = "tokens:" + directory.write("t.bin", "12345678") + ":int64";
  EXPECT_EQ(refusal(spec, {matrix(2)}), spec + ": tokens are uint16 or uint32, not 'int64'");
  const std::string path = directory.write("a:b", "12345678");
  EXPECT_EQ(open("tokens:" + path, matrix(2))->num_samples(), 2);
  EXPECT_EQ(open("tokens:" + path + ":uint32", matrix(2))->num_samples(), 1);
  EXPECT_EQ(refusal("tokens:" + directory.path("none"), {matrix(2)}),
            "cannot open " + directory.path("none") + ": No such file or directory");
  EXPECT_EQ(refusal("tokens::uint16", {matrix(2)}),
            "the data 'tokens::uint16' names an empty path");
}

TEST(Tokens, RefuseATokenThatDoesNotFitTheInput) {
  const ScratchDirectory directory;
  const std::string spec =
      "tokens:" + directory.write("t.bin", bytes_of<uint32_t>({1, 3000000000})) + ":uint32";
  const auto dataset = open(spec, matrix(2, DType::kInt32));
  std::vector<std::byte> row(8);
  EXPECT_EQ(dataset->read_rows(0, std::vector<uint64_t>{0}, row).error().message,
            spec +
                ": sample 0 does not suit the input idx: 3000000000 does not fit i32 (-2147483648 "
                "to 2147483647)");
}

TEST(OpenDataset, RefusesDataOfUnknownKindAndNamesTheKnownOnes) {
  EXPECT_EQ(refusal("csv:a.csv", {matrix(2)}),
            "the data 'csv:a.csv' is of the unknown kind 'csv'; known are bytes:, tokens:, "
            "arrays:, safetensors:, random:");
  EXPECT_EQ(refusal("a.txt", {matrix(2)}),
            "the data 'a.txt' does not say its kind; put one of bytes:, tokens:, arrays:, "
            "safetensors:, random: before it");
  EXPECT_EQ(refusal("bytes:a.txt", {}), "the model has no inputs, so it cannot read bytes:a.txt");
}

}  // namespace
}  // namespace trireme
