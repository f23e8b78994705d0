#include "trireme/cluster/link_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

Cluster cluster_of(int32_t hosts, int32_t devices, const Network& network) {
  return {.name = "test",
          .device_kinds = {{.name = "d", .flops = {{"float32", 1e12}}, .bandwidth = 1e12}},
          .host_kinds = {{.name = "h", .device = "d", .devices = devices, .link = {1e11, 1e-6}}},
          .hosts = {{.name = "n", .kind = "h", .count = hosts}},
          .network = network};
}

// "n0:0 n0 leaf0 n1 n1:0"
std::string path_text(LinkGraph& graph, int32_t from, int32_t to) {
  std::string text;
  for (const int32_t link : graph.path(from, to)) {
    if (text.empty()) text = graph.links()[link].from;
    text += " " + graph.links()[link].to;
  }
  return text;
}

TEST(LinkGraph, PathsAreTheShortestOnes) {
  const LinkSpeed fast{1e10, 1e-6};
  LinkGraph tree(cluster_of(
      4, 2, {.topology = "fat-tree", .speed = fast, .hosts_per_switch = 2, .oversubscription = 4}));
  EXPECT_EQ(tree.num_devices(), 8);
  EXPECT_EQ(path_text(tree, 0, 0), "");
  EXPECT_EQ(path_text(tree, 0, 1), "n0:0 n0 n0:1");
  EXPECT_EQ(path_text(tree, 0, 3), "n0:0 n0 leaf0 n1 n1:1");
  EXPECT_EQ(path_text(tree, 1, 6), "n0:1 n0 leaf0 spine leaf1 n3 n3:0");
  const int32_t up = tree.path(1, 6)[2];
  EXPECT_EQ(tree.links()[up].speed.bandwidth, 1e10 * 2 / 4);

  LinkGraph torus(cluster_of(12, 1, {.topology = "torus", .speed = fast, .dims = {4, 3}}));
  EXPECT_EQ(path_text(torus, 0, 3), "n0:0 n0 n3 n3:0");  // around
  EXPECT_EQ(path_text(torus, 0, 8), "n0:0 n0 n8 n8:0");
  EXPECT_EQ(torus.path(0, 5).size(), 4U);
  LinkGraph pairs(cluster_of(4, 1, {.topology = "torus", .speed = fast, .dims = {2, 2}}));
  EXPECT_EQ(pairs.links().size(), 4U * 2 + 4U * 2);  // one link a pair, in two directions

  LinkGraph islands(cluster_of(4, 1,
                               {.topology = "nvlink-island",
                                .speed = {1e9, 1e-5},
                                .hosts_per_island = 2,
                                .island = {1e11, 1e-6}}));
  EXPECT_EQ(path_text(islands, 0, 1), "n0:0 n0 island0 n1 n1:0");
  EXPECT_EQ(path_text(islands, 0, 3), "n0:0 n0 island0 switch island1 n3 n3:0");

  LinkGraph dragonfly(cluster_of(
      18, 1,
      {.topology = "dragonfly", .speed = fast, .hosts_per_switch = 2, .switches_per_group = 3}));
  EXPECT_TRUE(dragonfly.is_connected());
  for (int32_t to = 1; to < 18; ++to) {
    // Up, at most switch, group link, switch, and down.
    EXPECT_LE(dragonfly.path(0, to).size(), 7U) << to;
  }
}

TEST(LinkGraph, AnAdapterLeadsAroundTheHost) {
  Cluster cluster =
      cluster_of(2, 2, {.topology = "fat-tree", .speed = {1e10, 1e-6}, .hosts_per_switch = 2});
  cluster.host_kinds[0].adapter = {2e10, 3e-6};
  LinkGraph graph(cluster);
  EXPECT_EQ(path_text(graph, 0, 1), "n0:0 n0 n0:1");
  EXPECT_EQ(path_text(graph, 1, 2), "n0:1 n0 adapter leaf0 n1 n1:0");
  EXPECT_EQ(graph.links()[graph.path(1, 2).front()].speed.bandwidth, 2e10);
  EXPECT_EQ(graph.links()[graph.path(1, 2).back()].speed.latency, 3e-6);
}

// A host may have the name of a switch that a topology makes.
TEST(LinkGraph, SwitchesOfATopologyAreNoHosts) {
  Cluster cluster =
      cluster_of(2, 1, {.topology = "fat-tree", .speed = {1e10, 1e-6}, .hosts_per_switch = 2});
  cluster.hosts = {{.name = "leaf0", .kind = "h"}, {.name = "b", .kind = "h"}};
  LinkGraph graph(cluster);
  EXPECT_EQ(graph.path(0, 1).size(), 4U);
}

TEST(LinkGraph, LinksOfAFileJoinHostsAndSwitches) {
  const Network network{.topology = "links",
                        .links = {{"n0", "n1", {1e9, 0}},
                                  {"n1", "s", {1e9, 0}},
                                  {"s", "n2", {1e9, 0}},
                                  {"n0", "n2", {1e8, 0}}}};
  LinkGraph graph(cluster_of(3, 1, network));
  EXPECT_EQ(path_text(graph, 0, 2), "n0:0 n0 n2 n2:0");
  EXPECT_EQ(path_text(graph, 2, 1), "n2:0 n2 s n1 n1:0");
}

}  // namespace
}  // namespace trireme
