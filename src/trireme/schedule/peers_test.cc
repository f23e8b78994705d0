#include "trireme/schedule/peers.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// 2 replicas of 3 stages with 2 chunks: virtual stages 0 to 5.
Schedule two_by_three() {
  return {.builder = "test",
          .num_stages = 3,
          .num_chunks = 2,
          .num_micro_batches = {4, 4},
          .tied_groups = {{0, 2}},
          .num_buckets = {1, 1, 1}};
}

std::string other_side(int32_t rank, std::string_view text) {
  const auto other = counterpart(two_by_three(), rank, parse_action(text).value());
  return other ? "rank " + std::to_string(other->rank) + " " + to_text(other->action) : "none";
}

TEST(Peers, MeetOnNeighbouringVirtualStagesOfOneReplica) {
  EXPECT_EQ(other_side(0, "SA3"), "rank 1 RA3");
  EXPECT_EQ(other_side(4, "RA3"), "rank 3 SA3");
  EXPECT_EQ(other_side(1, "SG3.1"), "rank 0 RG3.1");
  EXPECT_EQ(other_side(3, "RG2"), "rank 4 SG2");
}

TEST(Peers, GoFromTheLastStageOfAChunkToTheFirstOfTheNext) {
  EXPECT_EQ(other_side(2, "SA3"), "rank 0 RA3.1");
  EXPECT_EQ(other_side(3, "RA0.1"), "rank 5 SA0");
  EXPECT_EQ(other_side(0, "SG1.1"), "rank 2 RG1");
  EXPECT_EQ(other_side(5, "RG1"), "rank 3 SG1.1");
}

TEST(Peers, AreAbsentAtTheEndsOfThePipelineAndForOtherActions) {
  EXPECT_EQ(other_side(0, "RA0"), "none");
  EXPECT_EQ(other_side(3, "SG0"), "none");
  EXPECT_EQ(other_side(2, "SA0.1"), "none");
  EXPECT_EQ(other_side(5, "RG0.1"), "none");
  EXPECT_EQ(other_side(0, "F0"), "none");
  EXPECT_EQ(other_side(0, "SC0"), "none");
}

TEST(Peers, OfAVTurnAtItsEndsWhereNothingIsSent) {
  // Chunk 0 of stages 0, 1, 2 is followed by chunk 1 of stages 2, 1, 0, then chunk 2 of 0, 1, 2.
  Schedule schedule = two_by_three();
  schedule.placement = Placement::kV;
  schedule.num_chunks = 3;
  const auto other_of = [&](int32_t rank, std::string_view text) -> std::string {
    const auto other = counterpart(schedule, rank, parse_action(text).value());
    return other ? "rank " + std::to_string(other->rank) + " " + to_text(other->action) : "none";
  };
  EXPECT_EQ(other_of(3, "SA7"), "rank 4 RA7");
  EXPECT_EQ(other_of(2, "SA7"), "none");
  EXPECT_EQ(other_of(2, "RA7.1"), "none");
  EXPECT_EQ(other_of(2, "SA7.1"), "rank 1 RA7.1");
  EXPECT_EQ(other_of(5, "RG7.1"), "rank 4 SG7.1");
  EXPECT_EQ(other_of(4, "SG7.1"), "rank 5 RG7.1");
  EXPECT_EQ(other_of(0, "RA7.2"), "none");
  EXPECT_EQ(other_of(0, "SA7.2"), "rank 1 RA7.2");
  EXPECT_EQ(other_of(2, "SA7.2"), "none");
  for (int32_t virtual_stage = 0; virtual_stage < 9; ++virtual_stage) {
    const ChunkPlace place = place_of(schedule, 4, virtual_stage).value();
    EXPECT_GE(place.rank, 3);
    EXPECT_EQ(virtual_stage_of(schedule, place.rank, place.chunk), virtual_stage);
  }
  EXPECT_FALSE(place_of(schedule, 4, -1).has_value());
  EXPECT_FALSE(place_of(schedule, 4, 9).has_value());
}

TEST(Peers, OfACollectiveAreItsMembers) {
  const Schedule schedule = two_by_three();
  EXPECT_EQ(members(schedule, 4, parse_action("AR0").value()), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(members(schedule, 5, parse_action("TR0").value()), (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(members(schedule, 5, parse_action("SC1").value()),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(members(schedule, 5, parse_action("F0").value()), std::vector<int32_t>());
}

TEST(Peers, DescribeAnActionForPeople) {
  const Schedule schedule = two_by_three();
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"F3", "F3 (forward of micro-batch 3)"},
      {"Fc3", "Fc3 (forward of micro-batch 3 that keeps its input)"},
      {"R3", "R3 (recomputation of micro-batch 3)"},
      {"I3.1", "I3.1 (input gradients of micro-batch 3, chunk 1)"},
      {"W3", "W3 (weight gradients of micro-batch 3)"},
      {"B3.1", "B3.1 (backward of micro-batch 3, chunk 1)"},
      {"U", "U (update of the weights)"},
      {"SA3", "SA3 (activations of micro-batch 3 to rank 5)"},
      {"RA3", "RA3 (activations of micro-batch 3 from rank 3)"},
      {"SG3.1", "SG3.1 (gradients of micro-batch 3, chunk 1 to rank 3)"},
      {"RG3", "RG3 (gradients of micro-batch 3 from rank 5)"},
      {"AR0", "AR0 (gradient bucket 0 over ranks 1, 4)"},
      {"TR0", "TR0 (tied gradients of group 0 over ranks 3, 5)"},
      {"SC0", "SC0 (losses and item counts of all ranks)"},
      {"SC1", "SC1 (squared gradient norms of all ranks)"}};
  for (const auto& [text, description] : rows) {
    EXPECT_EQ(describe(schedule, 4, parse_action(text).value()), description);
  }
}

}  // namespace
}  // namespace trireme
