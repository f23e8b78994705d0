// The YAML of a Cluster.

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/yaml_keys.h"
#include "trireme/cluster/cluster.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme-cluster-1";

LinkSpeed read_speed(const YamlKeys& keys, const std::string& prefix = "") {
  return {.bandwidth = keys.get<double>((prefix + "bandwidth").c_str()),
          .latency = keys.get<double>((prefix + "latency").c_str(), 0.0),
          .cpu_per_byte = prefix.empty() ? keys.get<double>("cpu_per_byte", 0.0) : 0.0};
}

LinkSpeed read_link(const YAML::Node& node, const char* what) {
  return read_speed(YamlKeys(node, what, {"bandwidth", "latency", "cpu_per_byte"}));
}

DeviceKind read_device_kind(const std::string& name, const YAML::Node& node) {
  const YamlKeys keys(node, "a device kind",
                      {"flops", "memory", "bandwidth", "launch", "core_share", "share_period"});
  DeviceKind kind{.name = name,
                  .memory = keys.get<double>("memory"),
                  .bandwidth = keys.get<double>("bandwidth"),
                  .launch = keys.get<double>("launch", 0.0),
                  .core_share = keys.get<double>("core_share", DeviceKind().core_share),
                  .share_period = keys.get<double>("share_period", DeviceKind().share_period)};
  for (const auto& entry : keys.needed_map("flops")) {
    kind.flops[text_of(entry.first)] = entry.second.as<double>();
  }
  return kind;
}

Network read_network(const YAML::Node& node) {
  const YamlKeys keys(node, "the network",
                      {"topology", "bandwidth", "latency", "cpu_per_byte", "hosts_per_switch",
                       "oversubscription", "switches_per_group", "dims", "hosts_per_island",
                       "island_bandwidth", "island_latency", "links"});
  Network network{.topology = keys.get<std::string>("topology")};
  if (network.topology == "links") {
    if (!keys.has("links")) return network;
    for (const YAML::Node& each : keys.needed_list("links")) {
      const YamlKeys link(each, "a link", {"between", "bandwidth", "latency", "cpu_per_byte"});
      const auto between = link.get<std::vector<std::string>>("between");
      if (between.size() != 2) throw WrongYaml{each.Mark(), "a link is between two names"};
      network.links.push_back({between[0], between[1], read_speed(link)});
    }
    return network;
  }
  network.speed = read_speed(keys);
  network.hosts_per_switch = keys.get<int32_t>("hosts_per_switch", 0);
  network.oversubscription = keys.get<double>("oversubscription", 1.0);
  network.switches_per_group = keys.get<int32_t>("switches_per_group", 0);
  network.dims = keys.get("dims", std::vector<int32_t>());
  network.hosts_per_island = keys.get<int32_t>("hosts_per_island", 0);
  if (network.topology == "nvlink-island") network.island = read_speed(keys, "island_");
  return network;
}

Cluster read_cluster(const YAML::Node& root) {
  const YamlKeys keys(root, "the cluster",
                      {"format", "name", "device_kinds", "host_kinds", "hosts", "network"});
  if (keys.get<std::string>("format") != kFormat) {
    throw WrongYaml{root.Mark(), fmt::format("the format is not {}", kFormat)};
  }
  Cluster cluster{.name = keys.get<std::string>("name", "")};
  for (const auto& entry : keys.needed_map("device_kinds")) {
    cluster.device_kinds.push_back(read_device_kind(text_of(entry.first), entry.second));
  }
  for (const auto& entry : keys.needed_map("host_kinds")) {
    const YamlKeys kind(entry.second, "a host kind", {"device", "devices", "link", "adapter"});
    cluster.host_kinds.push_back(
        {.name = text_of(entry.first),
         .device = kind.get<std::string>("device"),
         .devices = kind.get<int32_t>("devices", 1),
         .link = read_link(kind.needed("link"), "the link of a host kind"),
         .adapter = kind.has("adapter")
                        ? read_link(kind.needed("adapter"), "the adapter of a host kind")
                        : LinkSpeed()});
  }
  for (const YAML::Node& each : keys.needed_list("hosts")) {
    const YamlKeys host(each, "a host", {"name", "kind", "count"});
    cluster.hosts.push_back({.name = host.get<std::string>("name"),
                             .kind = host.get<std::string>("kind"),
                             .count = host.get<int32_t>("count", 1)});
  }
  if (keys.has("network")) cluster.network = read_network(keys.needed("network"));
  return cluster;
}

// Shortest digits that read back as the same number.
std::string number(double value) { return fmt::format("{}", value); }

void write_speed(YAML::Emitter& out, const LinkSpeed& speed, const std::string& prefix = "") {
  out << YAML::Key << prefix + "bandwidth" << YAML::Value << number(speed.bandwidth);
  if (speed.latency != 0) {
    out << YAML::Key << prefix + "latency" << YAML::Value << number(speed.latency);
  }
  if (speed.cpu_per_byte != 0) {
    out << YAML::Key << "cpu_per_byte" << YAML::Value << number(speed.cpu_per_byte);
  }
}

void write_count(YAML::Emitter& out, const char* key, int32_t count) {
  if (count != 0) out << YAML::Key << key << YAML::Value << count;
}

void write_network(YAML::Emitter& out, const Network& network) {
  out << YAML::BeginMap << YAML::Key << "topology" << YAML::Value << network.topology;
  if (network.topology == "links") {
    out << YAML::Key << "links" << YAML::Value << YAML::BeginSeq;
    for (const NetworkLink& link : network.links) {
      out << YAML::Flow << YAML::BeginMap << YAML::Key << "between" << YAML::Value << YAML::Flow
          << std::vector<std::string>{link.from, link.to};
      write_speed(out, link.speed);
      out << YAML::EndMap;
    }
    out << YAML::EndSeq << YAML::EndMap;
    return;
  }
  write_speed(out, network.speed);
  write_count(out, "hosts_per_switch", network.hosts_per_switch);
  if (network.oversubscription != 1) {
    out << YAML::Key << "oversubscription" << YAML::Value << number(network.oversubscription);
  }
  write_count(out, "switches_per_group", network.switches_per_group);
  if (!network.dims.empty()) {
    out << YAML::Key << "dims" << YAML::Value << YAML::Flow << network.dims;
  }
  write_count(out, "hosts_per_island", network.hosts_per_island);
  if (network.topology == "nvlink-island") write_speed(out, network.island, "island_");
  out << YAML::EndMap;
}

}  // namespace

std::string to_text(const Cluster& cluster) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value << kFormat;
  out << YAML::Key << "name" << YAML::Value << cluster.name;
  out << YAML::Key << "device_kinds" << YAML::Value << YAML::BeginMap;
  for (const DeviceKind& kind : cluster.device_kinds) {
    out << YAML::Key << kind.name << YAML::Value << YAML::Flow << YAML::BeginMap;
    out << YAML::Key << "flops" << YAML::Value << YAML::BeginMap;
    for (const auto& [dtype, flops] : kind.flops) {
      out << YAML::Key << dtype << YAML::Value << number(flops);
    }
    out << YAML::EndMap << YAML::Key << "memory" << YAML::Value << number(kind.memory);
    out << YAML::Key << "bandwidth" << YAML::Value << number(kind.bandwidth);
    if (kind.launch != 0) out << YAML::Key << "launch" << YAML::Value << number(kind.launch);
    if (kind.core_share != DeviceKind().core_share) {
      out << YAML::Key << "core_share" << YAML::Value << number(kind.core_share);
    }
    if (kind.share_period != DeviceKind().share_period) {
      out << YAML::Key << "share_period" << YAML::Value << number(kind.share_period);
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::Key << "host_kinds" << YAML::Value << YAML::BeginMap;
  for (const HostKind& kind : cluster.host_kinds) {
    out << YAML::Key << kind.name << YAML::Value << YAML::Flow << YAML::BeginMap;
    out << YAML::Key << "device" << YAML::Value << kind.device;
    out << YAML::Key << "devices" << YAML::Value << kind.devices;
    out << YAML::Key << "link" << YAML::Value << YAML::BeginMap;
    write_speed(out, kind.link);
    out << YAML::EndMap;
    if (kind.adapter != LinkSpeed()) {
      out << YAML::Key << "adapter" << YAML::Value << YAML::BeginMap;
      write_speed(out, kind.adapter);
      out << YAML::EndMap;
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::Key << "hosts" << YAML::Value << YAML::BeginSeq;
  for (const HostGroup& group : cluster.hosts) {
    out << YAML::Flow << YAML::BeginMap << YAML::Key << "name" << YAML::Value << group.name;
    out << YAML::Key << "kind" << YAML::Value << group.kind;
    if (group.count != 1) out << YAML::Key << "count" << YAML::Value << group.count;
    out << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::Key << "network" << YAML::Value;
  write_network(out, cluster.network);
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Result<Cluster> parse_cluster(std::string_view text) {
  return read_yaml<Cluster>(text, read_cluster);
}

}  // namespace trireme
