// The YAML of a Cluster. yaml-cpp reports malformed files by exceptions; they end here.

#include <set>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/cluster/cluster.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme-cluster-1";

// What is wrong with a file, thrown to the end of parse_cluster.
struct Wrong {
  int line;
  std::string what;
};

// A map of known keys.
class Keys {
 public:
  Keys(const YAML::Node& node, const char* what, std::set<std::string> known)
      : node_(node), what_(what) {
    if (!node.IsMap()) throw Wrong{node.Mark().line, fmt::format("{} is no map of keys", what)};
    for (const auto& entry : node) {
      const auto key = entry.first.as<std::string>();
      if (known.contains(key)) continue;
      throw Wrong{entry.first.Mark().line, fmt::format("{} has no key {}", what, in_quotes(key))};
    }
  }

  [[nodiscard]] YAML::Node needed(const char* key) const {
    if (node_[key]) return node_[key];
    throw Wrong{node_.Mark().line, fmt::format("{} has no '{}'", what_, key)};
  }
  template <typename Value>
  [[nodiscard]] Value get(const char* key) const {
    return needed(key).as<Value>();
  }
  template <typename Value>
  [[nodiscard]] Value get(const char* key, const Value& otherwise) const {
    return node_[key] ? node_[key].as<Value>() : otherwise;
  }

 private:
  YAML::Node node_;
  const char* what_;
};

YAML::Node list(const YAML::Node& node, const char* what) {
  if (node.IsSequence()) return node;
  throw Wrong{node.Mark().line, fmt::format("{} is no list", what)};
}

LinkSpeed read_speed(const Keys& keys, const std::string& prefix = "") {
  return {.bandwidth = keys.get<double>((prefix + "bandwidth").c_str()),
          .latency = keys.get<double>((prefix + "latency").c_str(), 0.0),
          .cpu_per_byte = prefix.empty() ? keys.get<double>("cpu_per_byte", 0.0) : 0.0};
}

DeviceKind read_device_kind(const std::string& name, const YAML::Node& node) {
  const Keys keys(node, "a device kind", {"flops", "memory", "bandwidth", "launch"});
  DeviceKind kind{.name = name,
                  .memory = keys.get<double>("memory"),
                  .bandwidth = keys.get<double>("bandwidth"),
                  .launch = keys.get<double>("launch", 0.0)};
  const YAML::Node flops = keys.needed("flops");
  if (!flops.IsMap()) throw Wrong{flops.Mark().line, "flops is no map from dtypes to numbers"};
  for (const auto& entry : flops) {
    kind.flops[entry.first.as<std::string>()] = entry.second.as<double>();
  }
  return kind;
}

Network read_network(const YAML::Node& node) {
  const Keys keys(node, "the network",
                  {"topology", "bandwidth", "latency", "cpu_per_byte", "hosts_per_switch",
                   "oversubscription", "switches_per_group", "dims", "hosts_per_island",
                   "island_bandwidth", "island_latency", "links"});
  Network network{.topology = keys.get<std::string>("topology")};
  if (network.topology == "links") {
    for (const YAML::Node& each :
         list(keys.get("links", YAML::Node(YAML::NodeType::Sequence)), "links")) {
      const Keys link(each, "a link", {"between", "bandwidth", "latency", "cpu_per_byte"});
      const auto between = link.get<std::vector<std::string>>("between");
      if (between.size() != 2) throw Wrong{each.Mark().line, "a link is between two names"};
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
  const Keys keys(root, "the cluster",
                  {"format", "name", "device_kinds", "host_kinds", "hosts", "network"});
  if (keys.get<std::string>("format") != kFormat) {
    throw Wrong{0, fmt::format("it is no cluster (format: {} is missing)", kFormat)};
  }
  Cluster cluster{.name = keys.get<std::string>("name", "")};
  const YAML::Node devices = keys.needed("device_kinds");
  for (const auto& entry : devices) {
    cluster.device_kinds.push_back(read_device_kind(entry.first.as<std::string>(), entry.second));
  }
  const YAML::Node kinds = keys.needed("host_kinds");
  for (const auto& entry : kinds) {
    const Keys kind(entry.second, "a host kind", {"device", "devices", "link"});
    const Keys link(kind.needed("link"), "the link of a host kind",
                    {"bandwidth", "latency", "cpu_per_byte"});
    cluster.host_kinds.push_back({.name = entry.first.as<std::string>(),
                                  .device = kind.get<std::string>("device"),
                                  .devices = kind.get<int32_t>("devices", 1),
                                  .link = read_speed(link)});
  }
  for (const YAML::Node& each : list(keys.needed("hosts"), "hosts")) {
    const Keys host(each, "a host", {"name", "kind", "count"});
    cluster.hosts.push_back({.name = host.get<std::string>("name"),
                             .kind = host.get<std::string>("kind"),
                             .count = host.get<int32_t>("count", 1)});
  }
  cluster.network = read_network(keys.needed("network"));
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
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::Key << "host_kinds" << YAML::Value << YAML::BeginMap;
  for (const HostKind& kind : cluster.host_kinds) {
    out << YAML::Key << kind.name << YAML::Value << YAML::Flow << YAML::BeginMap;
    out << YAML::Key << "device" << YAML::Value << kind.device;
    out << YAML::Key << "devices" << YAML::Value << kind.devices;
    out << YAML::Key << "link" << YAML::Value << YAML::BeginMap;
    write_speed(out, kind.link);
    out << YAML::EndMap << YAML::EndMap;
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
  // The emitter could not write such strings again.
  if (!is_utf8(text)) return Error{"it is not UTF-8 text"};
  try {
    return read_cluster(YAML::Load(std::string(text)));
  } catch (const Wrong& wrong) {
    return Error{fmt::format("line {}: {}", wrong.line + 1, wrong.what)};
  } catch (const YAML::BadConversion& exception) {
    return Error{fmt::format("line {}: the value is of another kind than expected",
                             exception.mark.line + 1)};
  } catch (const YAML::Exception& exception) {
    return Error{
        fmt::format("line {} is not YAML ({})", exception.mark.line + 1, one_line(exception.msg))};
  }
}

}  // namespace trireme
