#include "trireme/cost/collectives.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using enum AllReduceFormula;
constexpr AlphaBeta kLink = {.latency_s = 1e-3, .bytes_per_s = 1e6};

TEST(Collectives, TakeWhatTheirFormulasSay) {
  // 1 MB is one second. Ring of 4: 6 messages of a quarter.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kRing, 4, 1e6, kLink), 6 * (0.001 + 0.25));
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kTree, 4, 1e6, kLink), 4 * (0.001 + 1));
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kTree, 5, 1e6, kLink), 6 * (0.001 + 1));
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kHalvingDoubling, 4, 1e6, kLink), 4 * 0.001 + 1.5);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kHalvingDoubling, 6, 1e6, kLink),
                   4 * 0.001 + 1.5 + 2 * (0.001 + 1));
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(4, 1e6, kLink), 3 * (0.001 + 0.25));
}

TEST(Collectives, OfOneMemberTakeNoTime) {
  for (const AllReduceFormula formula : {kRing, kTree, kHalvingDoubling}) {
    EXPECT_EQ(all_reduce_seconds(formula, 1, 1e6, kLink), 0) << to_text(formula);
  }
  EXPECT_EQ(hierarchical_all_reduce_seconds(1, 1, 1e6, kLink, kLink), 0);
}

TEST(Collectives, AHierarchicalOneSendsAPartOfTheBytesBetweenHosts) {
  const AlphaBeta outer = {.latency_s = 0.01, .bytes_per_s = 1e5};
  // In a host of 4: 2 x 3 messages of a quarter; between 2 hosts: 2 messages of an eighth.
  EXPECT_DOUBLE_EQ(hierarchical_all_reduce_seconds(4, 2, 1e6, kLink, outer),
                   6 * (0.001 + 0.25) + 2 * (0.01 + 1.25));
}

}  // namespace
}  // namespace trireme
