#include "trireme/cluster/cluster.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr const char* kHosts = R"(format: trireme-cluster-1
name: test
device_kinds:
  a100: {flops: {float32: 19.5e12, bfloat16: 312e12}, memory: 80e9, bandwidth: 2.0e12, launch: 5e-6}
host_kinds:
  box: {device: a100, devices: 2, link: {bandwidth: 300e9, latency: 2e-6}, adapter: {bandwidth: 25e9}}
hosts:
  - {name: n, kind: box, count: 4}
)";

TEST(Cluster, ItsTextReadsBack) {
  for (const char* network :
       {"network: {topology: links, links: [{between: [n0, s], bandwidth: 1e9, latency: 1e-6},"
        "{between: [n1, s], bandwidth: 1e9}, {between: [n2, s], bandwidth: 1e9, cpu_per_byte: "
        "4e-10}, {between: [n3, n2], bandwidth: 1e8}]}",
        "network: {topology: fat-tree, bandwidth: 1e9, latency: 1e-6, hosts_per_switch: 2, "
        "oversubscription: 3}",
        "network: {topology: dragonfly, bandwidth: 1e9, hosts_per_switch: 1, "
        "switches_per_group: 2}",
        "network: {topology: torus, bandwidth: 1e9, dims: [2, 2]}",
        "network: {topology: nvlink-island, bandwidth: 1e9, hosts_per_island: 2, "
        "island_bandwidth: 1e11, island_latency: 1e-6}"}) {
    const Result<Cluster> cluster = parse_cluster(std::string(kHosts) + network);
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    const Status verified = verify_cluster(cluster.value());
    EXPECT_TRUE(verified.ok()) << verified.error().message;
    EXPECT_EQ(cluster.value().host_kinds[0].link, (LinkSpeed{300e9, 2e-6}));
    const Result<Cluster> back = parse_cluster(to_text(cluster.value()));
    ASSERT_TRUE(back.ok()) << back.error().message << to_text(cluster.value());
    EXPECT_EQ(back.value(), cluster.value()) << to_text(cluster.value());
  }
}

TEST(Cluster, ADeviceMayHaveAShareOfAProcessor) {
  std::string text = kHosts;
  text.replace(text.find("launch: 5e-6"), 12, "core_share: 0.25, share_period: 0.01");
  text += "network: {topology: torus, bandwidth: 1e9, dims: [2, 2]}";
  const Result<Cluster> cluster = parse_cluster(text);
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster.value().device_kinds[0].core_share, 0.25);
  EXPECT_EQ(cluster.value().device_kinds[0].share_period, 0.01);
  const Result<Cluster> back = parse_cluster(to_text(cluster.value()));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value(), cluster.value());
}

std::string refusal(const std::string& text) {
  const Result<Cluster> cluster = parse_cluster(text);
  if (!cluster.ok()) return cluster.error().message;
  const Status verified = verify_cluster(cluster.value());
  return verified.ok() ? "accepted" : verified.error().message;
}

TEST(Cluster, WhatIsWrongIsNamed) {
  const std::string hosts = kHosts;
  const auto with_share = [&](const std::string& share) {
    std::string text = hosts;
    text.replace(text.find("launch: 5e-6"), 12, share);
    return refusal(text + "network: {topology: torus, bandwidth: 1e9, dims: [2, 2]}");
  };
  EXPECT_EQ(with_share("core_share: 0"),
            "device kind \"a100\": its core_share 0 is not 0.001 to 1 of a period");
  EXPECT_EQ(with_share("core_share: 1.5"),
            "device kind \"a100\": its core_share 1.5 is not 0.001 to 1 of a period");
  EXPECT_EQ(with_share("core_share: 0.5, share_period: 2"),
            "device kind \"a100\": its share_period of 2 s is not 0.001 to 1 s");
  EXPECT_EQ(refusal("a: 1"), "line 1: the cluster has no key \"a\"");
  EXPECT_EQ(refusal(hosts), "the links do not join all hosts; add the ones that are missing");
  EXPECT_EQ(refusal(hosts + "network: {topology: links, link: []}"),
            "line 9: the network has no key \"link\"");
  EXPECT_EQ(
      refusal(hosts + "network: {topology: ring, bandwidth: 1e9}"),
      "unknown topology \"ring\"; known are links, fat-tree, dragonfly, torus, nvlink-island");
  EXPECT_EQ(refusal(hosts + "network: {topology: torus, bandwidth: 1e9, dims: [3]}"),
            "the torus has 3 places for 4 hosts");
  EXPECT_EQ(refusal(hosts + "network: {topology: torus, bandwidth: x, dims: [4]}"),
            "line 9: the value is of another kind than expected");
  EXPECT_EQ(refusal(hosts + "network: {topology: torus, bandwidth: 0, dims: [4]}"),
            "the bandwidth of the network is 0 bytes a second; it must be at least 1");
  EXPECT_EQ(refusal(hosts + "network: {topology: links, links: [{between: [n0, n1], bandwidth: "
                            "1e9}]}"),
            "the links do not join all hosts; add the ones that are missing");
  EXPECT_EQ(refusal(hosts + "network: {topology: links, links: [{between: [n0, n0], bandwidth: "
                            "1e9}]}"),
            "the link between \"n0\" and \"n0\" needs two different names");
  const std::string many = "  - {name: m, kind: box, count: 65536}\n";
  EXPECT_EQ(refusal(hosts + many + "network: {topology: links}"),
            "the cluster has more than 65536 devices");
  EXPECT_EQ(refusal(hosts + "  - {name: m, kind: crate}\nnetwork: {topology: links}"),
            "host \"m\" is of kind \"crate\", which host_kinds lacks");
  EXPECT_EQ(refusal(hosts + "  - {name: n1, kind: box}\nnetwork: {topology: links}"),
            "there are two hosts \"n1\"");
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Cluster, TheExamplesAreClusters) {
  int num_seen = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TRIREME_TEST_DATA "/../../examples/clusters")) {
    EXPECT_EQ(refusal(text_of(entry.path())), "accepted") << entry.path();
    ++num_seen;
  }
  EXPECT_GE(num_seen, 4);
}

}  // namespace
}  // namespace trireme
