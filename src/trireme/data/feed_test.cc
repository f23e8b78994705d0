#include "trireme/data/feed.h"

#include <cstring>

#include <gtest/gtest.h>

#include "trireme/data/npy_text.h"
#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

Graph graph_of(const std::string& inputs) {
  Result<Graph> graph = parse_graph("parameter %w \"w\" f32[] grad\n" + inputs + "return %w\n");
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return std::move(graph).value();
}

// Input `index` of a micro-batch of `samples` out of a step of `step` samples.
template <typename T>
std::vector<T> read(const Feed& feed, size_t index, const std::vector<uint64_t>& samples,
                    const std::vector<uint64_t>& step, std::vector<int64_t> sizes) {
  const SymbolValues common = feed.step_symbols(step).value();
  const auto symbols = feed.micro_batch_symbols(common, samples);
  EXPECT_TRUE(symbols.ok()) << symbols.error().message;
  const auto tensor = feed.read(index, samples, symbols.value());
  EXPECT_TRUE(tensor.ok()) << tensor.error().message;
  EXPECT_EQ(tensor.value().sizes, sizes);
  std::vector<T> numbers(tensor.value().size_bytes / sizeof(T));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), tensor.value().memory.get(), tensor.value().size_bytes);
  }
  return numbers;
}

std::string refusal(const Graph& graph, const FeedOptions& options) {
  const auto feed = Feed::open(graph, options);
  return feed.ok() ? "accepted" : feed.error().message;
}

std::string refusal(const Graph& graph, const std::string& data) {
  return refusal(graph, FeedOptions{.data = data, .seq_len = {}, .lengths = {}});
}

// Four samples: 3, 0, 2 and 1 values.
struct Jagged {
  ScratchDirectory directory;
  std::string values =
      directory.write("v.npy", npy("<i8", "(6,)", bytes_of<int64_t>({1, 2, 3, 4, 5, 6})));
  std::string weights =
      directory.write("w.npy", npy("<f4", "(6, 1)", bytes_of<float>({10, 20, 30, 40, 50, 60})));
  std::string short_offsets = offsets("short.npy", "(4,)", {0, 3, 3, 5});
  std::string long_offsets = offsets("long.npy", "(5,)", {0, 3, 3, 5, 6});
  std::string y = directory.write("y.npy", npy("<i8", "(4,)", bytes_of<int64_t>({0, 1, 2, 3})));

  std::string offsets(const std::string& name, const std::string& shape,
                      const std::vector<int32_t>& numbers) const {
    return directory.write(name, npy("<i4", shape, bytes_of(std::span(numbers))));
  }
  static Graph graph(const std::string& offsets) {
    return graph_of(
        "input %v \"v\" i64[s1] offsets \"o\"\ninput %u \"u\" f32[s1,1] offsets \"o\"\n" + offsets +
        "input %y \"y\" i64[s0]\n");
  }
  std::string data(const std::string& offsets) const {
    return fmt::format("arrays:{},{},{},{}", values, weights, offsets, y);
  }
};

TEST(JaggedFeed, CutsBySampleAndRebasesTheOffsets) {
  const Jagged jagged;
  for (const std::string& offsets : {jagged.short_offsets, jagged.long_offsets}) {
    const Graph graph = Jagged::graph("input %o \"o\" i64[s0]\n");
    const auto feed = Feed::open(graph, {.data = jagged.data(offsets)});
    ASSERT_TRUE(feed.ok()) << feed.error().message;
    EXPECT_EQ(feed.value()->num_samples(), 4);
    const std::vector<uint64_t> samples{3, 1, 0};
    EXPECT_EQ(read<int64_t>(*feed.value(), 0, samples, samples, {4}),
              (std::vector<int64_t>{6, 1, 2, 3}));
    EXPECT_EQ(read<float>(*feed.value(), 1, samples, samples, {4, 1}),
              (std::vector<float>{60, 10, 20, 30}));
    EXPECT_EQ(read<int64_t>(*feed.value(), 2, samples, samples, {3}),
              (std::vector<int64_t>{0, 1, 1}));
    EXPECT_EQ(read<int64_t>(*feed.value(), 3, samples, samples, {3}),
              (std::vector<int64_t>{3, 1, 0}));
    // A micro-batch without values.
    EXPECT_EQ(read<int64_t>(*feed.value(), 0, {1}, samples, {0}), std::vector<int64_t>{});
    EXPECT_EQ(read<int64_t>(*feed.value(), 2, {1}, samples, {1}), (std::vector<int64_t>{0}));
  }
}

TEST(JaggedFeed, GivesOneOffsetMoreWhereTheModelTakesTheEnd) {
  const Jagged jagged;
  for (const std::string& offsets : {jagged.short_offsets, jagged.long_offsets}) {
    const Graph graph = Jagged::graph("input %o \"o\" i32[add(1,s0)]\n");
    const auto feed = Feed::open(graph, {.data = jagged.data(offsets)});
    ASSERT_TRUE(feed.ok()) << feed.error().message;
    EXPECT_EQ(read<int32_t>(*feed.value(), 2, {2, 0}, {2, 0}, {3}),
              (std::vector<int32_t>{0, 2, 5}));
  }
}

TEST(JaggedFeed, CountsTheSamplesByTheOffsetsWhereNothingElseDoes) {
  const Jagged jagged;
  const auto count = [&](const std::string& offsets, const std::string& path) {
    const Graph graph = graph_of("input %v \"v\" i64[s1] offsets \"o\"\n" + offsets);
    const auto feed = Feed::open(graph, {.data = fmt::format("arrays:{},{}", jagged.values, path)});
    return feed.ok() ? feed.value()->num_samples() : -1;
  };
  EXPECT_EQ(count("input %o \"o\" i64[s0]\n", jagged.short_offsets), 4);
  EXPECT_EQ(count("input %o \"o\" i64[add(1,s0)]\n", jagged.long_offsets), 4);
}

TEST(JaggedFeed, ADigestTellsOtherOffsetsApart) {
  const Jagged jagged;
  const Graph graph = Jagged::graph("input %o \"o\" i64[s0]\n");
  const auto digest = [&](const std::string& offsets) {
    return Feed::open(graph, {.data = jagged.data(offsets)}).value()->digest();
  };
  const std::string other = jagged.offsets("other.npy", "(4,)", {0, 3, 4, 5});
  EXPECT_EQ(digest(jagged.short_offsets), digest(jagged.short_offsets));
  EXPECT_NE(digest(jagged.short_offsets), digest(other));
}

TEST(JaggedFeed, RefusesOffsetsThatDoNotFit) {
  const Jagged jagged;
  const Graph graph = Jagged::graph("input %o \"o\" i64[s0]\n");
  const auto told = [&](const std::string& shape, const std::vector<int32_t>& offsets) {
    return refusal(graph, jagged.data(jagged.offsets("o.npy", shape, offsets)));
  };
  EXPECT_EQ(told("(4,)", {1, 3, 3, 5}), "offset 0 of o is 1, not 0");
  EXPECT_EQ(told("(4,)", {0, 3, 2, 5}), "offset 2 of o is 2, less than the 3 before it");
  EXPECT_EQ(told("(4,)", {0, -3, 2, 5}), "offset 1 of o is -3, less than the 0 before it");
  EXPECT_EQ(told("(4,)", {0, 3, 3, 7}), "offset 3 of o is 7, but v has 6 values");
  EXPECT_EQ(told("(5,)", {0, 3, 3, 5, 5}), "the last offset of o is 5, but v has 6 values");
  EXPECT_EQ(told("(3,)", {0, 3, 5}),
            jagged.directory.path("o.npy") + " has 3 offsets, but " + jagged.y +
                " has 4 samples; give one for each sample, and at most one more for the end");
  const std::string floats =
      jagged.directory.write("f.npy", npy("<f4", "(4,)", bytes_of<float>({0, 3, 3, 5})));
  EXPECT_EQ(refusal(graph, jagged.data(floats)),
            floats + " is of f32, but the input o takes i64; convert the data");
  Jagged other;
  other.weights = other.directory.write("five.npy", npy("<f4", "(5, 1)", std::string(20, '\0')));
  EXPECT_EQ(refusal(graph, other.data(other.short_offsets)),
            "u has 5 values, but v has 6, and o cuts both");
}

TEST(JaggedFeed, RefusesInputsOfOneSizeWithOtherNumbersOfValues) {
  const Jagged jagged;
  const Graph graph = graph_of(R"(input %v "v" i64[s1] offsets "o"
input %u "u" f32[s1,1] offsets "p"
input %o "o" i64[s0]
input %p "p" i64[s0]
)");
  const std::string other = jagged.offsets("other.npy", "(4,)", {0, 3, 4, 5});
  const auto feed =
      Feed::open(graph, {.data = fmt::format("arrays:{},{},{},{}", jagged.values, jagged.weights,
                                             jagged.short_offsets, other)});
  ASSERT_TRUE(feed.ok()) << feed.error().message;
  const std::vector<uint64_t> samples{1};
  EXPECT_EQ(feed.value()->micro_batch_symbols({}, samples).error().message,
            "the inputs v and u are of one size in the model, but the 1 samples from 1 have 0 and "
            "1 values there");
}

// Three samples of 4 positions and their lengths.
struct Padded {
  ScratchDirectory directory;
  std::string x = directory.write(
      "x.npy", npy("<i8", "(3, 4)", bytes_of<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})));
  std::string mask = directory.write(
      "m.npy", npy("<i8", "(4, 4)",
                   bytes_of<int64_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})));
  std::string lengths = directory.write("n.npy", npy("<i4", "(3,)", bytes_of<int32_t>({1, 3, 2})));
  std::string data = fmt::format("arrays:{},{},n={}", x, mask, lengths);
  Graph graph = graph_of("batch s0\ninput %x \"x\" i64[s0,s1]\ninput %m \"m\" i64[s1,s1]\n");
};

TEST(LengthsFeed, CropsEachStepToItsLongestSample) {
  const Padded padded;
  const auto opened = Feed::open(
      padded.graph, {.data = padded.data, .lengths = {{.input = "x", .dim = {}, .column = "n"}}});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Feed& feed = *opened.value();
  EXPECT_EQ(read<int64_t>(feed, 0, {0}, {0}, {1, 1}), (std::vector<int64_t>{1}));
  EXPECT_EQ(read<int64_t>(feed, 0, {2, 0}, {2, 0}, {2, 2}), (std::vector<int64_t>{9, 10, 1, 2}));
  // The step's longest, not the micro-batch's.
  EXPECT_EQ(read<int64_t>(feed, 0, {0}, {0, 1}, {1, 3}), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(read<int64_t>(feed, 1, {2}, {2}, {2, 2}), (std::vector<int64_t>{0, 1, 4, 5}));
}

TEST(LengthsFeed, TheColumnMayBeAnInput) {
  const Padded padded;
  const Graph graph = graph_of("input %x \"x\" i64[s0,s1]\ninput %n \"n\" i32[s0]\n");
  const auto feed =
      Feed::open(graph, {.data = fmt::format("arrays:{},{}", padded.x, padded.lengths),
                         .lengths = {{.input = "x", .dim = 1, .column = "n"}}});
  ASSERT_TRUE(feed.ok()) << feed.error().message;
  EXPECT_EQ(read<int64_t>(*feed.value(), 0, {0}, {0}, {1, 1}), (std::vector<int64_t>{1}));
  EXPECT_EQ(read<int32_t>(*feed.value(), 1, {2}, {2}, {1}), (std::vector<int32_t>{2}));
}

TEST(LengthsFeed, RefusesLengthsThatDoNotFit) {
  const Padded padded;
  const auto told = [&](const LengthOption& option, const std::string& data) {
    return refusal(padded.graph, {.data = data, .seq_len = {}, .lengths = {option}});
  };
  EXPECT_EQ(told({.input = "z", .dim = {}, .column = "n"}, padded.data),
            "--lengths z=n: the model has no input z; it has x, m");
  EXPECT_EQ(told({.input = "x", .dim = 0, .column = "n"}, padded.data),
            "--lengths x=n needs a symbolic dim of the input i64[s0,s1] besides the batch, but dim "
            "0 is none");
  EXPECT_EQ(told({.input = "m", .dim = {}, .column = "n"}, padded.data),
            "--lengths m=n needs a symbolic dim of the input i64[s1,s1] besides the batch, but it "
            "has 2; say which, as in m.0=n");
  EXPECT_EQ(told({.input = "x", .dim = {}, .column = "m"}, padded.data),
            "--lengths x=m: the input m is not one integer for each sample");
  EXPECT_EQ(told({.input = "x", .dim = {}, .column = "k"}, padded.data),
            padded.data + " has no column k; add it as ,k=PATH");
  const std::string wrong =
      padded.directory.write("five.npy", npy("<i4", "(3,)", bytes_of<int32_t>({1, 5, 2})));
  EXPECT_EQ(told({.input = "x", .dim = {}, .column = "n"},
                 fmt::format("arrays:{},{},n={}", padded.x, padded.mask, wrong)),
            "n gives sample 1 the length 5, but x has room for 0 to 4");
  EXPECT_EQ(refusal(padded.graph, {.data = padded.data,
                                   .lengths = {{.input = "x", .dim = {}, .column = "n"},
                                               {.input = "m", .dim = 0, .column = "n"}}}),
            "--lengths m=n: --lengths x=n says the lengths of the size s1, which is the same one; "
            "leave one of them out");
}

TEST(Feed, PutsTheBatchWhereTheModelHasIt) {
  const ScratchDirectory directory;
  std::vector<int32_t> numbers(12);
  for (int32_t i = 0; i < 12; ++i) numbers[static_cast<size_t>(i)] = i;
  const std::string x = directory.write(
      "x.npy", npy("<i4", "(2, 3, 2)", bytes_of(std::span<const int32_t>(numbers))));
  const auto read_as = [&](const std::string& type, std::vector<int64_t> sizes) {
    const Graph graph = graph_of("input %x \"x\" " + type + "\n");
    const auto feed = Feed::open(graph, {.data = "arrays:" + x});
    EXPECT_TRUE(feed.ok()) << feed.error().message;
    return read<int32_t>(*feed.value(), 0, {1, 0}, {1, 0}, std::move(sizes));
  };
  EXPECT_EQ(read_as("i32[s0,3,2]", {2, 3, 2}),
            (std::vector<int32_t>{6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read_as("i32[3,s0,2]", {3, 2, 2}),
            (std::vector<int32_t>{6, 7, 0, 1, 8, 9, 2, 3, 10, 11, 4, 5}));
  EXPECT_EQ(read_as("i32[3,2,s0]", {3, 2, 2}),
            (std::vector<int32_t>{6, 0, 7, 1, 8, 2, 9, 3, 10, 4, 11, 5}));
  const Graph other = graph_of("input %x \"x\" i32[2,s0,2]\n");
  EXPECT_EQ(refusal(other, "arrays:" + x),
            x + " has rows of sizes [3,2], but the input x takes [2,2]");
}

TEST(Feed, GivesAnInputWithoutABatchToAll) {
  const ScratchDirectory directory;
  const std::string x = directory.write("x.npy", npy("<f4", "(3,)", bytes_of<float>({1, 2, 3})));
  const std::string m = directory.write("m.npy", npy("<f4", "(2,)", bytes_of<float>({7, 8})));
  const std::string t = directory.write("t.npy", npy("<f8", "()", bytes_of<double>({0.5})));
  const Graph graph =
      graph_of("input %x \"x\" f32[s0]\ninput %m \"m\" f32[2]\ninput %t \"t\" f64[]\n");
  const auto feed = Feed::open(graph, {.data = fmt::format("arrays:{},{},{}", x, m, t)});
  ASSERT_TRUE(feed.ok()) << feed.error().message;
  EXPECT_EQ(feed.value()->num_samples(), 3);
  EXPECT_EQ(read<float>(*feed.value(), 0, {2}, {2}, {1}), (std::vector<float>{3}));
  EXPECT_EQ(read<float>(*feed.value(), 1, {2}, {2}, {2}), (std::vector<float>{7, 8}));
  EXPECT_EQ(read<double>(*feed.value(), 2, {2, 1}, {2, 1}, {}), (std::vector<double>{0.5}));
  EXPECT_EQ(refusal(graph, fmt::format("arrays:{},{},{}", x, x, t)),
            x + " has the sizes [3], but the input m takes [2]; it has no batch and is given once");
}

}  // namespace
}  // namespace trireme
