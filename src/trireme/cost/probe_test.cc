#include "trireme/cost/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/cluster/link_graph.h"

namespace trireme {
namespace {

Estimate exactly(double value) { return {value, value, value}; }

LinkFit link(double latency_s, double bytes_per_s) {
  return {.latency_s = exactly(latency_s), .bytes_per_s = exactly(bytes_per_s)};
}

// Ranks on these hosts, of one speed each.
Probe probe_of(const std::vector<std::pair<std::string, double>>& ranks) {
  Probe probe{.transport = "direct"};
  for (const auto& [host, flops] : ranks) {
    probe.ranks.push_back({.host = host,
                           .processor = "a processor",
                           .flops = {{"float32", exactly(flops)}},
                           .bytes_per_s = exactly(10e9),
                           .launch_s = exactly(2e-6),
                           .memory = 4e9});
  }
  return probe;
}

// Of the path between two devices, as the simulator adds it up.
LinkSpeed path_speed(const Cluster& cluster, int32_t from, int32_t to) {
  LinkGraph graph(cluster);
  LinkSpeed speed{.bandwidth = 1e30};
  for (const int32_t index : graph.path(from, to)) {
    const LinkSpeed& each = graph.links()[static_cast<size_t>(index)].speed;
    speed.bandwidth = std::min(speed.bandwidth, each.bandwidth);
    speed.latency += each.latency;
  }
  return speed;
}

TEST(Probe, PathsOfTheClusterAreWhatWasMeasured) {
  Probe probe =
      probe_of({{"a", 1e10}, {"a", 1e10}, {"b", 1e10}, {"b", 1e10}, {"c", 1e10}, {"c", 1e10}});
  for (const int32_t rank : {0, 2, 4}) {
    probe.pairs.push_back({.first = rank, .second = rank + 1, .fit = link(20e-6, 3e9)});
  }
  // c is behind a slow and far link.
  probe.pairs.push_back(
      {.first = 0, .second = 2, .fit = link(100e-6, 100e6), .cpu_per_byte = 1e-9});
  probe.pairs.push_back({.first = 0, .second = 4, .fit = link(500e-6, 10e6)});
  probe.pairs.push_back({.first = 2, .second = 4, .fit = link(500e-6, 10e6)});
  const Cluster cluster = cluster_of(probe);
  ASSERT_TRUE(verify_cluster(cluster).ok()) << verify_cluster(cluster).error().message;
  EXPECT_EQ(cluster.host_kinds.size(), 1U);
  for (const ProbedPair& pair : probe.pairs) {
    const LinkSpeed speed = path_speed(cluster, pair.first, pair.second);
    EXPECT_NEAR(speed.latency, pair.fit.latency_s.value, 1e-9) << pair.first << pair.second;
    EXPECT_EQ(speed.bandwidth, pair.fit.bytes_per_s.value) << pair.first << pair.second;
  }
  EXPECT_EQ(cluster.network.links[0].speed.cpu_per_byte, 1e-9);
  EXPECT_THAT(notes_of(probe), testing::IsEmpty());
}

TEST(Probe, HostsOfOtherSpeedsOrSizesAreOtherKinds) {
  const Probe probe = probe_of({{"a", 1e10}, {"b", 1.1e10}, {"c", 3e10}, {"d", 1e10}, {"d", 1e10}});
  const Cluster cluster = cluster_of(probe);
  ASSERT_TRUE(verify_cluster(cluster).ok()) << verify_cluster(cluster).error().message;
  std::vector<std::string> kinds;
  for (const HostGroup& host : cluster.hosts) kinds.push_back(host.kind);
  EXPECT_THAT(kinds, testing::ElementsAre("host", "host", "host-2", "host-3"));
  EXPECT_EQ(cluster.device_kinds[1].flops.at("float32"), 3e10);
  EXPECT_EQ(cluster.host_kinds[2].devices, 2);
}

TEST(Probe, ItsTextIsAClusterWithTheMeasurementsAsComments) {
  Probe probe = probe_of({{"switch", 1e10}, {"b", 1e10}});
  probe.pairs.push_back(
      {.first = 0, .second = 1, .fit = link(100e-6, 100e6), .cpu_per_byte = 2e-9});
  probe.all_reduces.push_back(
      {.scope = "a rank of each host", .members = 2, .fit = link(200e-6, 50e6)});
  const std::string text = cluster_text(probe);
  EXPECT_EQ(parse_cluster(text).value(), cluster_of(probe)) << text;
  EXPECT_THAT(text, testing::HasSubstr("#   ranks 0 and 1: 100 us (100 .. 100), 100 MB/s (100 .. "
                                       "100), 2 ns of a processor a byte\n"));
  EXPECT_THAT(text, testing::HasSubstr("#   a rank of each host, 2 members: 200 us"));
  EXPECT_THAT(text,
              testing::HasSubstr("# host b has one rank, so the link of a device to it is "
                                 "assumed to have no latency and the bandwidth of its memory\n"));
  EXPECT_EQ(cluster_of(probe).network.links[0].to, "switch-") << "a host has the switch's name";
}

}  // namespace
}  // namespace trireme
