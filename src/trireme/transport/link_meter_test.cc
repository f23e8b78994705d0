#include "trireme/transport/link_meter.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Counts = std::vector<std::optional<SentCounts>>;

// Of this rank and two peers, what grows with time.
class LinkMeterTest : public testing::Test {
 protected:
  void send(size_t peer, uint64_t num_bytes, uint64_t busy_us) {
    SentCounts& counts = counts_[peer].value();
    counts.confirmed_bytes += num_bytes;
    counts.busy_us += busy_us;
  }
  void look() { meter_.look(counts_); }
  double bytes_per_s(size_t peer) { return meter_.take(peer).value().bytes_per_s; }

  Counts counts_ = {std::nullopt, SentCounts{.least_round_trip_us = 80},
                    SentCounts{.least_round_trip_us = 200}};
  LinkMeter meter_{3};
};

TEST_F(LinkMeterTest, TellsBytesOverTheTimeInWhichTheyWereOnTheirWay) {
  look();
  send(1, 1'000'000, 40'000);
  look();
  const std::optional<MeasuredLink> link = meter_.take(1);
  EXPECT_DOUBLE_EQ(link.value().bytes_per_s, 25e6);
  EXPECT_DOUBLE_EQ(link.value().latency_s, 40e-6);
  EXPECT_FALSE(meter_.take(1).has_value());  // nothing since
  EXPECT_FALSE(meter_.take(2).has_value());
  EXPECT_FALSE(meter_.take(0).has_value());
}

TEST_F(LinkMeterTest, WhatWasSentBeforeTheFirstLookDoesNotCount) {
  send(1, 1'000'000, 1);
  look();
  send(1, 1'000'000, 40'000);
  look();
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
}

TEST_F(LinkMeterTest, AnIntervalThatIsSharedDoesNotCount) {
  look();
  send(1, 1'000'000, 80'000);
  send(2, 1'000'000, 80'000);
  look();
  EXPECT_FALSE(meter_.take(1).has_value());
  send(1, 1'000'000, 40'000);
  send(2, 20'000, 1'000);  // not worth mentioning
  look();
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
  EXPECT_FALSE(meter_.take(2).has_value());
}

// The kernel counts in ticks of 4 ms or so.
TEST_F(LinkMeterTest, ShortIntervalsAreGathered) {
  look();
  for (int i = 0; i < 39; ++i) {
    send(1, 25'000, i % 4 == 3 ? 4'000 : 0);
    look();
  }
  EXPECT_FALSE(meter_.take(1).has_value());
  send(1, 25'000, 4'000);
  look();
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
}

TEST_F(LinkMeterTest, WhatIsNotYetConfirmedHasTakenItsTime) {
  look();
  send(1, 0, 20'000);
  look();
  send(1, 1'000'000, 20'000);
  look();
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
  send(1, 0, 40'000);
  send(2, 0, 40'000);
  look();
  send(1, 1'000'000, 40'000);
  look();
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
}

TEST_F(LinkMeterTest, IntervalsThatWereDisturbedDoNotCountWhereMostWereNot) {
  look();
  for (const uint64_t busy_us : {50'000, 40'000, 200'000, 40'000, 40'000, 40'000}) {
    send(1, 1'000'000, busy_us);
    look();
  }
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
}

TEST_F(LinkMeterTest, OldIntervalsMakeRoomForNewOnes) {
  look();
  for (int i = 0; i < 1500; ++i) {
    send(1, 1'000'000, i < 900 ? 50'000 : 40'000);
    look();
  }
  EXPECT_DOUBLE_EQ(bytes_per_s(1), 25e6);
}

}  // namespace
}  // namespace trireme
