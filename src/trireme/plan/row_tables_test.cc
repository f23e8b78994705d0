#include "trireme/plan/row_tables.h"

#include <cmath>

#include <gtest/gtest.h>

#include "trireme/plan/plan.h"

namespace trireme {
namespace {

// %w is read by rows twice, %b in bags; %h also as a matrix; a row of %n is changed in place; %f is
// frozen.
constexpr std::string_view kModel = R"(hint s0 = 3
parameter %w "words" f32[1000,8] grad
parameter %b "bags" bf16[500,4] grad
parameter %h "head" f32[1000,8] grad
parameter %n "normed" f32[1000,8] grad
parameter %f "frozen" f32[1000,8]
input %x "x" i64[s0,4]
input %z "z" i64[s0]
input %y "y" i64[s0]
%e0 = aten.embedding.default(weight=%w, indices=%x) -> f32[s0,4,8]
%e1 = aten.embedding.default(weight=%w, indices=%z) -> f32[s0,8]
%e2 = aten.embedding.default(weight=%h, indices=%z) -> f32[s0,8]
%n_ = aten.embedding_renorm_.default(self=%n, indices=%z, max_norm=1, norm_type=2) -> f32[1000,8]
%e3 = aten.embedding.default(weight=%n_, indices=%z) -> f32[s0,8]
%e4 = aten.embedding.default(weight=%f, indices=%z) -> f32[s0,8]
%g = aten.embedding.default(weight=%b, indices=%z) -> bf16[s0,4]
%p = aten.sum.dim_IntList(self=%g, dim=[1]) -> bf16[s0]
%s = aten.sum.dim_IntList(self=%e0, dim=[1]) -> f32[s0,8]
%t0 = aten.add.Tensor(self=%s, other=%e1) -> f32[s0,8]
%t1 = aten.add.Tensor(self=%t0, other=%e2) -> f32[s0,8]
%t2 = aten.add.Tensor(self=%t1, other=%e3) -> f32[s0,8]
%t3 = aten.add.Tensor(self=%t2, other=%e4) -> f32[s0,8]
%q = aten.mul.Tensor(self=%t3, other=%p) -> f32[s0,8]
%o = aten.linear.default(input=%q, weight=%h) -> f32[s0,1000]
%loss = aten.cross_entropy_loss.default(self=%o, target=%y) -> f32[]
return %loss
)";

struct Model {
  Graph graph;
  Partition partition;
};

Model model_of_one_stage() {
  Graph graph = parse_graph(kModel).value();
  const Plan plan = build_plan(graph, "m.pt2", {}).value();
  Partition partition = partition_by_plan(plan, graph).value();
  return {std::move(graph), std::move(partition)};
}

TEST(RowTables, AreWhatOnlyRowReadsUse) {
  const auto [graph, partition] = model_of_one_stage();
  const std::vector<RowTable> tables = possible_row_tables(graph, partition, 20, 2);
  EXPECT_EQ(inputs_of(tables), (std::vector<int32_t>{0, 1}));
}

// 20 samples read 4 + 1 rows each of %w: 100 in all, 50 a replica. Of 16 bits, gradients are
// summed in 32.
TEST(RowTables, ExpectRowsThatAreDrawnEvenly) {
  const auto [graph, partition] = model_of_one_stage();
  const std::vector<RowTable> tables = possible_row_tables(graph, partition, 20, 2);
  ASSERT_EQ(tables.size(), 2);
  EXPECT_EQ(tables[0].num_rows, 1000);
  EXPECT_EQ(tables[0].row_bytes, 32);
  EXPECT_DOUBLE_EQ(tables[0].rows, 1000 * (1 - std::exp(-0.1)));
  EXPECT_DOUBLE_EQ(tables[0].ids, 2 * 1000 * (1 - std::exp(-0.05)));
  EXPECT_DOUBLE_EQ(tables[0].row_exchange_bytes(), 8 * tables[0].ids + 32 * tables[0].rows);
  EXPECT_EQ(tables[0].dense_bytes(), 32000);
  EXPECT_EQ(tables[1].row_bytes, 16);
}

TEST(RowTables, AreChosenWhereTheySaveHalfAndAMegabyte) {
  RowTable table{.num_rows = 1000, .row_bytes = 4000, .ids = 100, .rows = 100};
  EXPECT_TRUE(is_chosen(table, SparseChoice::kAuto));
  table.rows = 500;  // and the ids
  EXPECT_FALSE(is_chosen(table, SparseChoice::kAuto));
  EXPECT_TRUE(is_chosen(table, SparseChoice::kAlways));
  table = {.num_rows = 1000, .row_bytes = 1000, .ids = 1, .rows = 1};
  EXPECT_FALSE(is_chosen(table, SparseChoice::kAuto));
  table.num_rows = 1002;  // 1001 rows of 1000 bytes, less 8
  EXPECT_TRUE(is_chosen(table, SparseChoice::kAuto));
  EXPECT_FALSE(is_chosen(table, SparseChoice::kNever));
}

TEST(RowTables, OfOneReplicaNothingIsSummed) {
  const auto [graph, partition] = model_of_one_stage();
  const RowTableOptions options{.choice = SparseChoice::kAlways, .step_samples = 20, .dp = 2};
  EXPECT_EQ(choose_row_tables(graph, partition, options).size(), 2);
  EXPECT_EQ(choose_row_tables(graph, partition, {.choice = SparseChoice::kAlways}).size(), 2);
  EXPECT_EQ(
      reductions_of(graph, partition.stages[0], 1, {.row_tables = {0, 1}}).value().num_row_tables,
      0);
  EXPECT_EQ(row_tables_to_text(graph, partition, {.choice = SparseChoice::kAlways}), "");
}

TEST(RowTables, OfWhatEmbeddingsReadTheTextSaysWhyItIsSummedWhole) {
  const auto [graph, partition] = model_of_one_stage();
  const std::string text =
      row_tables_to_text(graph, partition, {.choice = SparseChoice::kAlways, .dp = 2});
  EXPECT_TRUE(text.starts_with(
      "gradients of \"head\" are summed whole: not only embeddings read it, or it is no table of "
      "rows\ngradients of \"words\" are summed row by row: "))
      << text;
  EXPECT_EQ(text.find("frozen"), std::string::npos) << text;
}

TEST(RowTables, HaveBucketsOfTheirOwnBehindAllOthers) {
  const auto [graph, partition] = model_of_one_stage();
  const std::vector<GradientBucket> buckets =
      gradient_buckets(graph, partition.stages[0], {.bytes = 1, .row_tables = {0, 1}});
  ASSERT_EQ(buckets.size(), 4);
  EXPECT_FALSE(buckets[1].is_row_table);
  EXPECT_TRUE(buckets[2].is_row_table);
  EXPECT_EQ(buckets[2].inputs, std::vector<int32_t>{0});
  EXPECT_EQ(buckets[3].inputs, std::vector<int32_t>{1});
}

TEST(RowTables, AreNoBucketsOfASchedule) {
  const Graph graph = parse_graph(R"(parameter %w "words" f32[9,2] grad
parameter %a "a" f32[2,2] grad
input %z "z" i64[s0]
%e = aten.embedding.default(weight=%w, indices=%z) -> f32[s0,2]
%l = aten.linear.default(input=%e, weight=%a) -> f32[s0,2]
%loss = aten.sum.default(self=%l) -> f32[]
return %loss
)")
                          .value();
  const Plan plan = build_plan(graph, "m.pt2", {}).value();
  const Partition partition = partition_by_plan(plan, graph).value();
  for (const int32_t dp : {1, 2}) {
    const Reductions reductions =
        reductions_of(graph, partition.stages[0], dp, {.row_tables = {0}}).value();
    EXPECT_EQ(reductions.num, dp - 1);
    EXPECT_EQ(reductions.num_row_tables, dp - 1);
  }
}

TEST(RowTables, AChoiceIsAWord) {
  for (const std::string_view word : kSparseChoices) {
    EXPECT_EQ(to_text(parse_sparse_choice(word).value()), word);
  }
  EXPECT_EQ(parse_sparse_choice("rarely").error().message,
            "unknown choice \"rarely\" of sparse gradients; known are auto, never, always");
}

}  // namespace
}  // namespace trireme
