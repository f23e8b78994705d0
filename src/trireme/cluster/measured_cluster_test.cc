#include "trireme/cluster/measured_cluster.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

Cluster tree() {
  return {.name = "test",
          .device_kinds = {{.name = "d", .flops = {{"float32", 1e12}}, .bandwidth = 1e12}},
          .host_kinds = {{.name = "h", .device = "d", .devices = 2, .link = {1e11, 1e-6}}},
          .hosts = {{.name = "n", .kind = "h", .count = 4}},
          .network = {.topology = "fat-tree",
                      .speed = {1e9, 1e-5},
                      .hosts_per_switch = 2,
                      .oversubscription = 2}};
}

std::vector<std::string> texts(const Cluster& cluster) {
  std::vector<std::string> lines;
  for (const NetworkLink& link : cluster.network.links) {
    lines.push_back(link.from + " " + link.to + " " +
                    std::to_string(static_cast<int64_t>(link.speed.bandwidth / 1e6)));
  }
  return lines;
}

TEST(MeasuredCluster, ALinkIsAsFastAsTheFastestPathOverIt) {
  // Devices 0 and 1 are on host n0, 2 on n1, 4 on n2. The way between the leaves has slowed down.
  const std::vector<MeasuredPath> paths = {
      {0, 2, 0.9e9}, {2, 0, 0.8e9}, {2, 4, 0.1e9}, {1, 4, 0.1e9}, {4, 1, 0.2e9}};
  const Cluster measured = with_measured_links(tree(), paths);
  EXPECT_TRUE(verify_cluster(measured).ok());
  EXPECT_EQ(texts(measured),
            (std::vector<std::string>{"leaf0 spine 100", "n0 leaf0 800", "n1 leaf0 800",
                                      "leaf1 spine 100", "n2 leaf1 100", "n3 leaf1 1000"}));
  EXPECT_EQ(measured.network.links[0].speed.latency, 1e-5);
  EXPECT_EQ(measured.host_kinds, tree().host_kinds);
}

TEST(MeasuredCluster, WithoutAMeasurementItStaysAsItIs) {
  const std::vector<MeasuredPath> within_a_host = {{0, 1, 1.0}};
  for (const std::vector<MeasuredPath>& paths : {std::vector<MeasuredPath>(), within_a_host}) {
    EXPECT_EQ(texts(with_measured_links(tree(), paths)),
              (std::vector<std::string>{"leaf0 spine 1000", "n0 leaf0 1000", "n1 leaf0 1000",
                                        "leaf1 spine 1000", "n2 leaf1 1000", "n3 leaf1 1000"}));
  }
}

TEST(MeasuredCluster, AStarHasALinkOfEachDevice) {
  const Cluster star = star_of(tree().device_kinds[0], 3, {1e8, 2e-5});
  EXPECT_TRUE(verify_cluster(star).ok());
  EXPECT_EQ(devices_of(star).size(), 3U);
  const std::vector<MeasuredPath> paths = {{0, 1, 1e8}, {1, 0, 1e8}, {1, 2, 2e7}};
  EXPECT_EQ(texts(with_measured_links(star, paths)),
            (std::vector<std::string>{"h0 switch 100", "h1 switch 100", "h2 switch 20"}));
}

}  // namespace
}  // namespace trireme
