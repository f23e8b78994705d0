#include "trireme/graph/input_layout.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// A graph with these inputs; its loss is a parameter.
Graph graph_of(const std::string& inputs) {
  Result<Graph> graph = parse_graph("parameter %w \"w\" f32[] grad\n" + inputs + "return %w\n");
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return std::move(graph).value();
}

std::string batch_of(const std::string& inputs) {
  return batch_symbol(graph_of(inputs)).value_or("none");
}

std::string refusal(const std::string& inputs) {
  const auto layouts = input_layouts(graph_of(inputs));
  return layouts.ok() ? "accepted" : layouts.error().message;
}

TEST(BatchSymbol, IsWhatTheInputsHaveInCommon) {
  EXPECT_EQ(batch_of("input %x \"x\" f32[s0,4]\ninput %y \"y\" i64[s0]\n"), "s0");
  // Dim 0 decides where two symbols would do.
  EXPECT_EQ(batch_of("input %x \"x\" i64[s0,s1]\ninput %y \"y\" i64[s0,s1]\n"), "s0");
  EXPECT_EQ(batch_of("input %x \"x\" f32[5,s0,4]\ninput %y \"y\" i64[s0]\n"), "s0");
  // Fixed sizes and jagged inputs do not count.
  EXPECT_EQ(batch_of("input %m \"m\" f32[4,4]\ninput %y \"y\" i64[s0]\n"), "s0");
  EXPECT_EQ(batch_of("input %v \"v\" i64[s1] offsets \"o\"\ninput %o \"o\" i64[add(1,s0)]\n"),
            "s0");
  EXPECT_EQ(batch_of("batch s1\ninput %x \"x\" i64[s0,s1]\ninput %y \"y\" i64[s0,s1]\n"), "s1");
}

TEST(BatchSymbol, IsNoneWhereTheInputsDiffer) {
  EXPECT_EQ(batch_of("input %x \"x\" f32[3,4]\n"), "none");
  EXPECT_EQ(batch_of("input %x \"x\" f32[s0,4]\ninput %y \"y\" i64[s1]\n"), "none");
  EXPECT_EQ(batch_of("input %x \"x\" f32[4,s0,s1]\n"), "none");
  // It might be the length of a sequence.
  EXPECT_EQ(batch_of("input %x \"x\" f32[s0,s1]\ninput %p \"p\" i64[s1]\n"), "none");
}

TEST(InputLayouts, SayHowEachInputIsCut) {
  const Graph graph = graph_of(R"(batch s0
input %x "x" f32[5,s0,4]
input %m "m" f32[s2,s2]
input %v "v" i64[s1] offsets "o"
input %w2 "w2" f32[s1] offsets "o"
input %o "o" i64[add(1,s0)]
input %y "y" i64[s0]
)");
  const auto layouts = input_layouts(graph);
  ASSERT_TRUE(layouts.ok()) << layouts.error().message;
  std::vector<InputCut> cuts;
  for (const InputLayout& layout : layouts.value()) cuts.push_back(layout.cut);
  using enum InputCut;
  EXPECT_EQ(cuts, (std::vector{kRows, kShared, kValues, kValues, kOffsets, kRows}));
  EXPECT_EQ(layouts.value()[0].batch_dim, 1U);
  EXPECT_EQ(layouts.value()[3].offsets, 4U);
  EXPECT_TRUE(layouts.value()[4].says_end);
}

TEST(InputLayouts, RefuseWhatCannotBeCut) {
  EXPECT_EQ(refusal("input %x \"x\" f32[s0,4]\ninput %y \"y\" i64[s1]\n"),
            "the batch is not one symbolic size of the inputs (x f32[s0,4], y i64[s1])");
  EXPECT_EQ(refusal("input %x \"x\" f32[s0,s0]\n"),
            "the input x f32[s0,s0] has the batch s0 in two dims, so it cannot be cut");
  EXPECT_EQ(refusal("input %x \"x\" f32[mul(2,s0)]\ninput %y \"y\" i64[s0]\nbatch s0\n"),
            "dim 0 of the input x f32[mul(2,s0)] is not the batch s0 but depends on it; give the "
            "model an input with one row for each sample");
  EXPECT_EQ(refusal("batch s9\ninput %x \"x\" f32[s0]\n"), "no input has the batch s9 (x f32[s0])");
  EXPECT_EQ(refusal("input %v \"v\" i64[s1] offsets \"o\"\ninput %o \"o\" f32[s0]\n"),
            "the input o f32[s0] holds offsets, but is not a vector of integers, one for each "
            "sample of the batch s0, or one more");
  EXPECT_EQ(refusal("input %v \"v\" i64[s0] offsets \"o\"\ninput %o \"o\" i64[s0]\n"),
            "the input v i64[s0] is jagged, but dim 0 is not a symbolic size of its own; export it "
            "with trireme.export(..., jagged={\"v\": \"o\"})");
  EXPECT_EQ(refusal("input %v \"v\" i64[s1] offsets \"o\"\ninput %o \"o\" i64[s0]\n"
                    "input %u \"u\" f32[s1]\nbatch s0\n"),
            "dim 0 of the input u f32[s1] has the size of the jagged input v; if it is cut by o as "
            "well, say so by --jagged u=o");
  EXPECT_EQ(refusal("input %v \"v\" i64[s1] offsets \"v\"\ninput %o \"o\" i64[s0]\n"),
            "v is to be cut by v, which is no input with offsets");
}

}  // namespace
}  // namespace trireme
