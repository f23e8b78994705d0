#include "trireme/sim/fluid_network.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Path = std::vector<LinkUse>;

TEST(FluidNetwork, AFlowAloneTakesItsBytesOverTheSlowestLink) {
  FluidNetwork network({100, 50, 200});
  const Path path = {{0}, {1}, {2}};
  network.start(7, 0, path, 100);
  EXPECT_EQ(network.rate(0), 50);
  const FluidNetwork::Completion end = network.pop();
  EXPECT_EQ(end.time, 7 + 2'000'000'000);
  EXPECT_EQ(end.flow, 0);
  EXPECT_FALSE(network.next().has_value());
  EXPECT_NEAR(network.carried(1), 100, 1e-9);
}

// Two links of 10: a long flow over both, one more on the first, two more on the second. The second
// gives 10/3 to each; on the first the short one takes what is left.
TEST(FluidNetwork, RatesAreMaxMinFair) {
  FluidNetwork network({10, 10});
  const Path both = {{0}, {1}};
  const Path first = {{0}};
  const Path second = {{1}};
  network.start(0, 0, both, 1e6);
  network.start(0, 1, first, 1e6);
  EXPECT_DOUBLE_EQ(network.rate(0), 5);
  EXPECT_DOUBLE_EQ(network.rate(1), 5);
  network.start(0, 2, second, 1e6);
  network.start(0, 3, second, 1e6);
  EXPECT_DOUBLE_EQ(network.rate(0), 10.0 / 3);
  EXPECT_DOUBLE_EQ(network.rate(2), 10.0 / 3);
  EXPECT_DOUBLE_EQ(network.rate(3), 10.0 / 3);
  EXPECT_DOUBLE_EQ(network.rate(1), 20.0 / 3);
}

// 60 bytes each on a link of 10: shared until the first ends at 12 s; one of 30 more bytes then has
// it alone, and ends 3 s later.
TEST(FluidNetwork, AFlowThatEndsLeavesItsShareToTheOthers) {
  FluidNetwork network({10});
  const Path path = {{0}};
  network.start(0, 0, path, 60);
  network.start(0, 1, path, 90);
  EXPECT_EQ(network.pop().time, 12'000'000'000);
  const FluidNetwork::Completion last = network.pop();
  EXPECT_EQ(last.flow, 1);
  EXPECT_EQ(last.time, 15'000'000'000);
}

TEST(FluidNetwork, APriorityGoesFirstAndTheOthersShareTheRest) {
  FluidNetwork network({10, 4});
  const Path narrow = {{0}, {1}};
  const Path wide = {{0}};
  network.start(0, 0, wide, 100);
  network.start(0, 1, wide, 100);
  network.start(0, 2, narrow, 100, /*priority=*/1);
  EXPECT_DOUBLE_EQ(network.rate(2), 4);
  EXPECT_DOUBLE_EQ(network.rate(0), 3);
  network.start(0, 3, wide, 100, /*priority=*/1);
  EXPECT_DOUBLE_EQ(network.rate(3), 6);
  EXPECT_DOUBLE_EQ(network.rate(0), 0);
  EXPECT_EQ(network.pop().flow, 3);  // 100 / 6 s
  EXPECT_DOUBLE_EQ(network.rate(0), 3);
}

TEST(FluidNetwork, AWeightIsHowOftenTheLinkCarriesAByte) {
  FluidNetwork network({10, 30});
  const Path ring = {{0, 1.5}, {1, 1.5}};
  network.start(0, 0, ring, 20);
  EXPECT_EQ(network.pop().time, 3'000'000'000);
  EXPECT_NEAR(network.carried(0), 30, 1e-9);
}

// A flow that another link holds at 2 takes twice that of this one; the rest is for the other flow.
TEST(FluidNetwork, AWeightCountsWhereLinksAreShared) {
  FluidNetwork network({10, 2});
  const Path twice = {{0, 2}, {1}};
  const Path once = {{0}};
  network.start(0, 0, twice, 100);
  network.start(0, 1, once, 100);
  EXPECT_DOUBLE_EQ(network.rate(0), 2);
  EXPECT_DOUBLE_EQ(network.rate(1), 6);
}

// The definition itself: every flow has a link that is full and on which no flow has more.
TEST(FluidNetwork, ManyFlowsThatComeAndGoStayMaxMinFair) {
  std::mt19937 random(3);
  std::vector<double> capacities;
  for (int i = 0; i < 12; ++i) capacities.push_back(1 + static_cast<double>(random() % 9));
  FluidNetwork network(capacities);
  std::map<int32_t, Path> paths;
  SimTime now = 0;
  int32_t num_checked = 0;
  for (int32_t id = 0; id < 400; ++id) {
    Path& path = paths[id];
    for (int32_t link = 0; link < 12; ++link) {
      if (random() % 4 == 0) path.push_back({link});
    }
    if (path.empty()) path.push_back({static_cast<int32_t>(random() % 12)});
    network.start(now, id, path, 1 + static_cast<double>(random() % 50));
    while (paths.size() > 15 && network.next().has_value()) {
      const FluidNetwork::Completion end = network.pop();
      ASSERT_GE(end.time, now);
      now = end.time;
      paths.erase(end.flow);
    }
    std::vector<double> used(12, 0);
    std::vector<double> most(12, 0);
    for (const auto& [flow, links] : paths) {
      for (const LinkUse& use : links) {
        used[use.link] += network.rate(flow);
        most[use.link] = std::max(most[use.link], network.rate(flow));
      }
    }
    for (const auto& [flow, links] : paths) {
      const bool is_stopped = std::ranges::any_of(links, [&](const LinkUse& use) {
        return used[use.link] > capacities[use.link] * (1 - 1e-9) &&
               network.rate(flow) > most[use.link] * (1 - 1e-9);
      });
      ASSERT_TRUE(is_stopped) << "flow " << flow << " after " << id;
      ++num_checked;
    }
    for (int32_t link = 0; link < 12; ++link) ASSERT_LE(used[link], capacities[link] * (1 + 1e-9));
  }
  EXPECT_GT(num_checked, 1000);
}

}  // namespace
}  // namespace trireme
