#include "trireme/sim/quota.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Quota, AllOfAProcessorIsNoLimit) {
  Quota quota;
  EXPECT_EQ(quota.use(5, 100), 105);
  EXPECT_EQ(quota.end_of(200, 7), 207);
}

TEST(Quota, WorkStopsWhenItsPartOfAPeriodIsUsedUp) {
  EXPECT_EQ(Quota(10, 4).end_of(0, 4), 4);
  EXPECT_EQ(Quota(10, 4).end_of(0, 6), 12);
  EXPECT_EQ(Quota(10, 4).end_of(0, 8), 14);
  EXPECT_EQ(Quota(10, 4).end_of(0, 9), 21);
  EXPECT_EQ(Quota(10, 4).end_of(3, 0), 3);
}

TEST(Quota, WaitingInAPeriodLosesNoTime) {
  EXPECT_EQ(Quota(10, 4).end_of(4, 6), 12);
  EXPECT_EQ(Quota(10, 4).end_of(6, 6), 12);
  // Later than that there is no time for all of it.
  EXPECT_EQ(Quota(10, 4).end_of(9, 6), 21);
}

TEST(Quota, WhatIsUsedOfAPeriodIsUsedByWorkBefore) {
  Quota quota(10, 4);
  EXPECT_EQ(quota.use(1, 3), 4);
  EXPECT_EQ(quota.end_of(5, 3), 12);
  EXPECT_EQ(quota.use(5, 1), 6);
  EXPECT_EQ(quota.use(7, 2), 12);
  // The next period is another one.
  EXPECT_EQ(quota.end_of(20, 4), 24);
  EXPECT_EQ(quota.end_of(13, 3), 21);
}

TEST(Quota, WorkThatEndsWithItsPeriodLeavesTheNextOneWhole) {
  Quota quota(10, 4);
  EXPECT_EQ(quota.use(8, 2), 10);
  EXPECT_EQ(quota.end_of(10, 4), 14);
}

TEST(Quota, InTheLongRunWorkTakesAsMuchLongerAsItsShareIsSmaller) {
  Quota quota(100, 38);
  SimTime now = 0;
  for (int i = 0; i < 1000; ++i) now = quota.use(now, 19);
  EXPECT_NEAR(static_cast<double>(now), 1000 * 19 / 0.38, 100);
}

}  // namespace
}  // namespace trireme
