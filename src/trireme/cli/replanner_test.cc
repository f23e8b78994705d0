#include "trireme/cli/replanner.h"

#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Two stages of two replicas.
RunSetup setup_of(double drift) {
  RunSetup setup;
  setup.plan.pp = 2;
  setup.plan.dp = 2;
  setup.request.replan_drift = drift;
  return setup;
}

// Of all links the same speed; 0: none has been measured.
std::vector<RankMeasurement> links_at(double bytes_per_s) {
  std::vector<RankMeasurement> told(4);
  for (RankMeasurement& rank : told) {
    for (MeasuredLink& link : rank.links) link.bytes_per_s = bytes_per_s;
  }
  return told;
}

MeasuredLink& link(std::vector<RankMeasurement>& told, size_t rank, Way way) {
  return told[rank].links[static_cast<size_t>(way)];
}

TEST(Replanner, RanksHaveThesePeers) {
  Plan plan;
  plan.pp = 3;
  plan.dp = 2;
  std::vector<int32_t> next;
  std::vector<int32_t> previous;
  std::vector<int32_t> replica;
  for (int32_t rank = 0; rank < 6; ++rank) {
    next.push_back(peer_of(plan, rank, Way::kNextStage));
    previous.push_back(peer_of(plan, rank, Way::kPreviousStage));
    replica.push_back(peer_of(plan, rank, Way::kNextReplica));
  }
  EXPECT_EQ(next, (std::vector<int32_t>{1, 2, -1, 4, 5, -1}));
  EXPECT_EQ(previous, (std::vector<int32_t>{-1, 0, 1, -1, 3, 4}));
  EXPECT_EQ(replica, (std::vector<int32_t>{3, 4, 5, 0, 1, 2}));
  plan.dp = 1;
  EXPECT_EQ(peer_of(plan, 0, Way::kNextReplica), -1);
}

TEST(Replanner, ADriftCountsTheSecondTimeInARow) {
  const RunSetup setup = setup_of(1.5);
  Replanner replanner(setup);
  EXPECT_FALSE(replanner.hear(links_at(7e6)));  // at first
  EXPECT_FALSE(replanner.hear(links_at(25e6)));
  EXPECT_FALSE(replanner.hear(links_at(25e6 / 1.4)));
  EXPECT_FALSE(replanner.hear(links_at(25e6 / 1.6)));
  EXPECT_FALSE(replanner.hear(links_at(25e6)));
  EXPECT_FALSE(replanner.hear(links_at(25e6 / 1.6)));
  EXPECT_FALSE(replanner.hear(links_at(25e6 * 1.6)));  // the other direction
  EXPECT_TRUE(replanner.hear(links_at(25e6 * 1.7)));
}

TEST(Replanner, WhatWasFoundToHaveDriftedIsExpectedFromThenOn) {
  const RunSetup setup = setup_of(1.5);
  Replanner replanner(setup);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(replanner.hear(links_at(25e6)));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(replanner.hear(links_at(10e6)), i == 1);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(replanner.hear(links_at(10e6)));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(replanner.hear(links_at(25e6)), i == 1);
}

TEST(Replanner, ALinkThatIsNotMeasuredNeitherDriftsNorForgets) {
  const RunSetup setup = setup_of(1.5);
  Replanner replanner(setup);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(replanner.hear(links_at(0)));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(replanner.hear(links_at(25e6)));
  EXPECT_FALSE(replanner.hear(links_at(10e6)));
  EXPECT_FALSE(replanner.hear(links_at(0)));
  EXPECT_TRUE(replanner.hear(links_at(10e6)));
}

TEST(Replanner, OneLinkIsEnough) {
  const RunSetup setup = setup_of(1.5);
  Replanner replanner(setup);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(replanner.hear(links_at(25e6)));
  std::vector<RankMeasurement> told = links_at(25e6);
  link(told, 3, Way::kPreviousStage).bytes_per_s = 5e6;
  EXPECT_FALSE(replanner.hear(told));
  EXPECT_TRUE(replanner.hear(told));
}

TEST(Replanner, TheLinksAreToldHopByHopAsTheirSlowestReplica) {
  const RunSetup setup = setup_of(1.5);
  std::vector<RankMeasurement> told = links_at(0);
  EXPECT_EQ(links_text(setup.plan, told), "");
  EXPECT_EQ(links_text(setup.plan, {}), "");
  link(told, 0, Way::kNextStage) = {.bytes_per_s = 25.04e6};
  link(told, 2, Way::kNextStage) = {.bytes_per_s = 12e6};
  link(told, 1, Way::kPreviousStage) = {.bytes_per_s = 1e9};
  link(told, 1, Way::kNextReplica) = {.bytes_per_s = 250e3};
  const std::vector<RankLink> links = measured_links(setup.plan, told);
  ASSERT_EQ(links.size(), 4U);
  EXPECT_EQ(links[0].to, 1);
  EXPECT_EQ(links[1].from, 1);
  EXPECT_EQ(links[1].to, 0);
  EXPECT_EQ(links[1].speed.bytes_per_s, 1e9);
  EXPECT_EQ(links[2].to, 3);
  EXPECT_TRUE(measured_links(setup.plan, {}).empty());
  EXPECT_EQ(links_text(setup.plan, told),
            "links as measured: stage 0 to 1 12MB/s, stage 1 to 0 1GB/s, replicas of stage 1 "
            "250kB/s");
}

}  // namespace
}  // namespace trireme
