#include "trireme/trace/clocks.h"

#include <random>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Two stages on two hosts: an activation goes from 100 to 150, a gradient comes back from 300 to
// 350, and the clock of the second host is `skew` ahead.
Timeline two_hosts(SimTime skew) {
  Timeline timeline = parse_timeline(
                          "timeline measured 1f1b stages=2 hosts=a,b host-of-rank=0,1\n"
                          "rank 0 SA0 100 140 peer=1\n"
                          "rank 1 RA0 90 150 peer=0\n"
                          "rank 1 SG0 300 340 peer=0\n"
                          "rank 0 RG0 200 350 peer=1\n")
                          .value();
  for (TimelineEvent& event : timeline.events) {
    if (event.rank != 1) continue;
    event.begin += skew;
    event.end += skew;
  }
  return timeline;
}

TEST(Clocks, OfTwoHostsMeetWhereTheFastestMessagesTakeEquallyLong) {
  for (const SimTime skew : {SimTime{0}, SimTime{1'000'000'000}, SimTime{7}}) {
    EXPECT_EQ(clock_offsets(two_hosts(skew)).value(), (std::vector<SimTime>{0, -skew})) << skew;
  }
}

TEST(Clocks, OfOneHostAreLeftAlone) {
  Timeline timeline = two_hosts(5);
  timeline.host_of_rank = {0, 0};
  timeline.hosts = {"a"};
  EXPECT_EQ(clock_offsets(timeline).value(), (std::vector<SimTime>{0}));
}

TEST(Clocks, AreBoundByACollective) {
  // Both came by 100 and ended at 160 in the first clock; the second one is 5000 ahead.
  const Timeline timeline = parse_timeline(
                                "timeline measured 1f1b stages=1 replicas=2 hosts=a,b "
                                "host-of-rank=0,1\n"
                                "rank 0 AR0 100 160\n"
                                "rank 1 AR0 5100 5160\n")
                                .value();
  EXPECT_EQ(clock_offsets(timeline).value(), (std::vector<SimTime>{0, -5000}));
}

TEST(Clocks, WithoutMessagesBeginTogether) {
  const Timeline timeline = parse_timeline(
                                "timeline measured 1f1b stages=1 replicas=2 hosts=a,b "
                                "host-of-rank=0,1\n"
                                "rank 0 F0 100 160\n"
                                "rank 1 F0 5200 5260\n")
                                .value();
  EXPECT_EQ(clock_offsets(timeline).value(), (std::vector<SimTime>{0, -5100}));
}

TEST(Clocks, ThatWereSetDuringTheRunAreRefused) {
  Timeline timeline = two_hosts(0);
  timeline.events[3].end =
      210;  // the gradient, sent at 300: no offset makes both messages positive
  timeline.events[1].end = 150;
  const Result<std::vector<SimTime>> offsets = clock_offsets(timeline);
  ASSERT_FALSE(offsets.ok());
  EXPECT_EQ(offsets.error().message,
            "the clocks of the hosts contradict each other: messages seem to have come before they "
            "were sent; was a clock set during the run");
}

// A chain of hosts, each with a clock of its own, and messages of random latency: afterwards no
// message comes before it was sent, and no clock is off by more than half the difference of the
// least latencies on the way to it.
TEST(Clocks, OfManyHostsAreAlignedToTheLatencyOfTheirMessages) {
  std::mt19937 random(1);
  const auto draw = [&](SimTime most) { return static_cast<SimTime>(random()) % most; };
  constexpr int32_t kNumHosts = 6;
  constexpr SimTime kMostLatency = 1000;
  for (int turn = 0; turn < 50; ++turn) {
    Timeline timeline{.builder = "1f1b", .num_stages = kNumHosts};
    std::vector<SimTime> skews = {0};
    for (int32_t host = 0; host < kNumHosts; ++host) {
      timeline.hosts.push_back(std::string(1, static_cast<char>('a' + host)));
      timeline.host_of_rank.push_back(host);
      if (host > 0) skews.push_back(draw(SimTime{1} << 40));
    }
    const auto add = [&](ActionKind kind, int32_t rank, int32_t peer, int32_t index, SimTime begin,
                         SimTime end) {
      const SimTime skew = skews[static_cast<size_t>(rank)];
      timeline.events.push_back({.rank = rank,
                                 .event_class = event_class_of(kind),
                                 .action = {kind, index},
                                 .begin = begin + skew,
                                 .end = end + skew,
                                 .peer = peer});
    };
    for (int32_t index = 0; index < 20; ++index) {
      for (int32_t rank = 0; rank + 1 < kNumHosts; ++rank) {
        const SimTime forth = draw(1'000'000);
        add(ActionKind::kSendActivation, rank, rank + 1, index, forth, forth + 1);
        add(ActionKind::kReceiveActivation, rank + 1, rank, index, forth,
            forth + 1 + draw(kMostLatency));
        const SimTime back = draw(1'000'000);
        add(ActionKind::kSendGradient, rank + 1, rank, index, back, back + 1);
        add(ActionKind::kReceiveGradient, rank, rank + 1, index, back,
            back + 1 + draw(kMostLatency));
      }
    }
    const std::vector<SimTime> offsets = clock_offsets(timeline).value();
    for (size_t host = 0; host < kNumHosts; ++host) {
      const SimTime error = offsets[host] + skews[host];
      EXPECT_LE(std::abs(error), static_cast<SimTime>(host) * kMostLatency / 2) << turn;
    }
  }
}

}  // namespace
}  // namespace trireme
