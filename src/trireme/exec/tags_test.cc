#include "trireme/exec/tags.h"

#include <set>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using enum ActionKind;

TEST(Tags, AreTheLayoutThatTheHeaderDraws) {
  EXPECT_EQ(transfer_tag({kReceiveActivation, 0, 0}, 0, 0), 0);
  EXPECT_EQ(transfer_tag({kReceiveActivation, 0, 0}, 0, 5), 5);
  EXPECT_EQ(transfer_tag({kReceiveActivation, 3, 0}, 0, 0), 3 << 12);
  EXPECT_EQ(transfer_tag({kReceiveActivation, 0, 2}, 0, 0), 2 << 26);
  EXPECT_EQ(transfer_tag({kReceiveGradient, 0, 0}, 0, 0), 1 << 30);
  EXPECT_EQ(transfer_tag({kReceiveGradient, 0, 0}, 3, 0), 1 << 30 | 1 << 11);
}

TEST(Tags, AreTheSameOnBothSidesOfABorderBetweenSteps) {
  // Sent ahead in step 6, received in step 7.
  EXPECT_EQ(transfer_tag({kReceiveActivation, 2, 0, 1}, 6, 4),
            transfer_tag({kReceiveActivation, 2, 0, 0}, 7, 4));
}

TEST(Tags, OfTheLargestNumbersAreDistinctAndNotNegative) {
  std::set<int32_t> tags;
  for (ActionKind kind : {kReceiveActivation, kReceiveGradient}) {
    for (int32_t micro_batch : {0, 1, kMaxMicroBatches - 1}) {
      for (int32_t chunk : {0, 1, kMaxChunks - 1}) {
        for (int32_t part : {0, 1, kMaxParts - 1}) {
          for (int64_t step : {6, 7}) {
            const int32_t tag = transfer_tag({kind, micro_batch, chunk}, step, part);
            EXPECT_GE(tag, 0);
            EXPECT_TRUE(tags.insert(tag).second);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme
