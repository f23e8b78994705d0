#include "trireme/schedule/picture.h"

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"

namespace trireme {
namespace {

int32_t count(std::string_view text, std::string_view word) {
  int32_t found = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Picture, HasABoxAPassToScale) {
  const Schedule schedule =
      build_schedule("1f1b", {.num_stages = 2, .num_micro_batches = {2}}).value();
  const std::string svg = svg_picture(schedule, {});
  EXPECT_EQ(count(svg, "<title>"), 8);
  // 9 units of 28 pixels; lanes begin at 76, the second at 34 + 24.
  EXPECT_EQ(count(svg, "<rect x=\"76.00\" y=\"34\" width=\"28.00\" height=\"20\""), 1) << svg;
  EXPECT_EQ(count(svg,
                  "<rect x=\"132.00\" y=\"58\" width=\"56.00\" height=\"20\" fill=\"#74c476\" "
                  "fill-opacity=\"1.00\" stroke=\"#444\" stroke-width=\"0.5\"><title>B0 from 2 "
                  "to 4</title>"),
            1)
      << svg;
  EXPECT_EQ(count(svg,
                  "<tspan font-weight=\"bold\">1f1b</tspan>: 2 stages, 2 micro-batches; 9 "
                  "units, 33.3 % idle; in flight at most 2</text>"),
            1);
  EXPECT_EQ(count(svg, ">forward<"), 1);
  EXPECT_EQ(count(svg, ">weight gradients<"), 0);
}

TEST(Picture, NumbersNoBoxThatIsTooNarrow) {
  const Schedule schedule =
      build_schedule("gpipe", {.num_stages = 1, .num_micro_batches = {200}}).value();
  EXPECT_EQ(count(svg_picture(schedule, {}), ">7</text>"), 0);
}

TEST(Picture, MakesLaterChunksPaler) {
  const Schedule schedule =
      build_schedule("zb-v", {.num_stages = 2, .num_micro_batches = {3}, .num_chunks = 2}).value();
  const std::string svg = svg_picture(schedule, {});
  EXPECT_EQ(count(svg, "fill-opacity=\"0.35\" stroke=\"#444\" stroke-width=\"0.5\"><title>"), 18);
  EXPECT_EQ(count(svg, ">chunk 1<"), 1);
}

TEST(Picture, KeepsItsFormWhateverTheName) {
  Schedule schedule = build_schedule("1f1b", {.num_stages = 1, .num_micro_batches = {1}}).value();
  schedule.builder = "a<b&c\x01\xff";
  EXPECT_EQ(count(svg_picture(schedule, {}), ">a&lt;b&amp;c?\?<"), 1);
}

}  // namespace
}  // namespace trireme
