#include "trireme/schedule/drawing.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"

namespace trireme {
namespace {

// The lines of the drawing in the comment at the top of a builder's file.
std::string drawing_in(std::string_view file) {
  const std::filesystem::path root =
      std::filesystem::path(TRIREME_TEST_DATA).parent_path().parent_path();
  std::ifstream input(root / "src/trireme/schedule/builders" / file);
  const std::string prefix = "//   ";
  std::string drawing;
  for (std::string line; std::getline(input, line);) {
    if (line.starts_with(prefix + "rank")) drawing += line.substr(prefix.size()) + "\n";
  }
  return drawing;
}

std::string drawn(std::string_view name, int32_t num_stages, std::vector<int32_t> counts,
                  int32_t num_chunks = 1) {
  return draw(build_schedule(name, {.num_stages = num_stages,
                                    .num_micro_batches = std::move(counts),
                                    .num_chunks = num_chunks})
                  .value());
}

// The first 16 cells of each line, as wide drawings are in comments.
std::string cut_off(const std::string& drawing) {
  const size_t width = std::string("rank 0 | ").size() + size_t{16} * 5;
  std::string text;
  for (size_t begin = 0; begin < drawing.size(); begin = drawing.find('\n', begin) + 1) {
    text += drawing.substr(begin, width) + "...\n";
  }
  return text;
}

TEST(Drawing, OfEveryBuilderIsTheOneAboveItsCode) {
  EXPECT_EQ(drawn("gpipe", 3, {4}), drawing_in("gpipe.cc"));
  EXPECT_EQ(drawn("1f1b", 3, {4}), drawing_in("one_f_one_b.cc"));
  EXPECT_EQ(drawn("zb-h1", 3, {4}), drawing_in("zb_h1.cc"));
  EXPECT_EQ(drawn("zb-h2", 3, {5}), drawing_in("zb_h2.cc"));
  EXPECT_EQ(drawn("pre-recompute", 3, {4}), drawing_in("pre_recompute.cc"));
  EXPECT_EQ(drawn("last-no-recompute", 3, {4}), drawing_in("last_no_recompute.cc"));
  EXPECT_EQ(drawn("shifted-critical-path", 3, {4}), drawing_in("shifted_critical_path.cc"));
  EXPECT_EQ(drawn("greedy", 3, {4}), drawing_in("greedy.cc"));
  EXPECT_EQ(cut_off(drawn("interleaved", 2, {4}, 2)), drawing_in("interleaved.cc"));
  EXPECT_EQ(cut_off(drawn("zb-v", 2, {4}, 2)), drawing_in("zb_v.cc"));
  EXPECT_EQ(cut_off(drawn("dualpipe-v", 2, {4}, 2)), drawing_in("dualpipe_v.cc"));
  EXPECT_EQ(drawn("forward-only", 3, {4}), drawing_in("forward_only.cc"));
}

TEST(Drawing, OfOneFOneBOverTwoStages) {
  EXPECT_EQ(drawn("1f1b", 2, {3}),
            "rank 0 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
            "rank 1 | .  F0 B0 -- F1 B1 -- F2 B2 --\n");
}

TEST(Drawing, WidensItsCellsAndItsRankNumbers) {
  EXPECT_EQ(drawn("forward-only", 1, {11, 1, 0}),
            "rank 0 | F0  F1  F2  F3  F4  F5  F6  F7  F8  F9  F10\n"
            "rank 1 | F0\n"
            "rank 2 |\n");
  const std::string drawing = drawn("forward-only", 1, std::vector<int32_t>(11, 1));
  EXPECT_TRUE(drawing.starts_with("rank  0 | F0\nrank  1 | F0\n")) << drawing;
  EXPECT_TRUE(drawing.ends_with("rank 10 | F0\n")) << drawing;
}

TEST(Drawing, OfChunksShowsTheirNumbers) {
  EXPECT_EQ(
      draw(parse_schedule("schedule interleaved stages=2 chunks=2 micro-batches=1 evaluation\n"
                          "rank 0: F0 SA0 RA0.1 F0.1 SA0.1 SC0\n"
                          "rank 1: RA0 F0 SA0 RA0.1 F0.1 SC0\n")
               .value()),
      "rank 0 | F0   .    F0.1\n"
      "rank 1 | .    F0   .    F0.1\n");
}

TEST(Drawing, OfTheOtherKinds) {
  EXPECT_EQ(draw(parse_schedule("schedule x stages=2 micro-batches=2\n"
                                "rank 0: Fc0 SA0 F1 SA1 R0 RG0 I0 RG1 B1 W0 SC0 U\n"
                                "rank 1: RA0 F0 I0 SG0 RA1 F1 W0 B1 SG1 SC0 U\n")
                     .value()),
            "rank 0 | Fc0 F1  R0  I0  .   .   .   B1  --  W0\n"
            "rank 1 | .   F0  I0  F1  W0  B1  --\n");
}

TEST(Drawing, TakesTheCellsOfTheFormula) {
  // Both take (m + S - 1) x (1 forward + 2 backward) cells a lane; the first rank ends last.
  for (std::string_view name : {"gpipe", "1f1b"}) {
    const std::string first_line = drawn(name, 4, {8}).substr(0, drawn(name, 4, {8}).find('\n'));
    EXPECT_EQ(first_line.size(), std::string("rank 0 | ").size() + size_t{8 + 4 - 1} * 3 * 3 - 1);
  }
}

}  // namespace
}  // namespace trireme
