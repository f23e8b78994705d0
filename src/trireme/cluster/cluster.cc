#include "trireme/cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cluster/link_graph.h"

namespace trireme {
namespace {

bool is_at_least(double number, double least) { return std::isfinite(number) && number >= least; }

Status check_speed(const LinkSpeed& speed, const std::string& of) {
  if (!is_at_least(speed.bandwidth, 1)) {
    return Error{fmt::format("the bandwidth of {} is {} bytes a second; it must be at least 1", of,
                             speed.bandwidth)};
  }
  if (!is_at_least(speed.latency, 0) || speed.latency > 1e3) {
    return Error{fmt::format("the latency of {} is {} s, not 0 to 1000", of, speed.latency)};
  }
  if (!is_at_least(speed.cpu_per_byte, 0) || speed.cpu_per_byte > 1) {
    return Error{fmt::format("cpu_per_byte of {} is {} s, not 0 to 1", of, speed.cpu_per_byte)};
  }
  return Status();
}

// Each has a name of its own.
template <typename Item>
Status check_names(const std::vector<Item>& items, const char* what) {
  std::set<std::string> names;
  for (const Item& item : items) {
    if (item.name.empty()) return Error{fmt::format("a {} has no name", what)};
    if (!names.insert(item.name).second) {
      return Error{fmt::format("there are two {}s {}", what, in_quotes(item.name))};
    }
  }
  return Status();
}

constexpr double kLeastShare = 0.001;
// Those of Linux.
constexpr double kLeastPeriod = 0.001;
constexpr double kMostPeriod = 1;

Status check_device_kind(const DeviceKind& kind) {
  for (const auto& [dtype, flops] : kind.flops) {
    if (is_at_least(flops, 1)) continue;
    return Error{fmt::format("device kind {}: its {} flops are {}; they must be at least 1",
                             in_quotes(kind.name), dtype, flops)};
  }
  if (!is_at_least(kind.memory, 0) || !is_at_least(kind.bandwidth, 1) ||
      !is_at_least(kind.launch, 0)) {
    return Error{fmt::format(
        "device kind {}: memory {} and launch {} must be at least 0, bandwidth {} at least 1",
        in_quotes(kind.name), kind.memory, kind.launch, kind.bandwidth)};
  }
  if (!is_at_least(kind.core_share, kLeastShare) || kind.core_share > 1) {
    return Error{fmt::format("device kind {}: its core_share {} is not {} to 1 of a period",
                             in_quotes(kind.name), kind.core_share, kLeastShare)};
  }
  if (!is_at_least(kind.share_period, kLeastPeriod) || kind.share_period > kMostPeriod) {
    return Error{fmt::format("device kind {}: its share_period of {} s is not {} to {} s",
                             in_quotes(kind.name), kind.share_period, kLeastPeriod, kMostPeriod)};
  }
  return Status();
}

Status check_hosts(const Cluster& cluster) {
  TRIREME_TRY(check_names(cluster.device_kinds, "device kind"));
  TRIREME_TRY(check_names(cluster.host_kinds, "host kind"));
  TRIREME_TRY(check_names(cluster.hosts, "host"));
  for (const DeviceKind& kind : cluster.device_kinds) TRIREME_TRY(check_device_kind(kind));
  for (const HostKind& kind : cluster.host_kinds) {
    if (std::ranges::count(cluster.device_kinds, kind.device, &DeviceKind::name) == 0) {
      return Error{fmt::format("host kind {} has devices of kind {}, which device_kinds lacks",
                               in_quotes(kind.name), in_quotes(kind.device))};
    }
    if (kind.devices < 1 || kind.devices > kMaxClusterDevices) {
      return Error{fmt::format("host kind {} has {} devices, not 1 to {}", in_quotes(kind.name),
                               kind.devices, kMaxClusterDevices)};
    }
    const std::string of = fmt::format("host kind {}", in_quotes(kind.name));
    TRIREME_TRY(check_speed(kind.link, "the link of " + of));
    if (kind.adapter != LinkSpeed()) TRIREME_TRY(check_speed(kind.adapter, "the adapter of " + of));
  }
  int64_t devices = 0;
  std::set<std::string> names;
  for (const HostGroup& group : cluster.hosts) {
    const auto kind = std::ranges::find(cluster.host_kinds, group.kind, &HostKind::name);
    if (kind == cluster.host_kinds.end()) {
      return Error{fmt::format("host {} is of kind {}, which host_kinds lacks",
                               in_quotes(group.name), in_quotes(group.kind))};
    }
    if (group.count < 1 || group.count > kMaxClusterDevices) {
      return Error{fmt::format("host {} has count {}, not 1 to {}", in_quotes(group.name),
                               group.count, kMaxClusterDevices)};
    }
    devices += int64_t{group.count} * kind->devices;
    if (devices > kMaxClusterDevices) {
      return Error{fmt::format("the cluster has more than {} devices", kMaxClusterDevices)};
    }
    for (int32_t i = 0; i < group.count; ++i) {
      const std::string name = group.count == 1 ? group.name : fmt::format("{}{}", group.name, i);
      if (!names.insert(name).second) {
        return Error{fmt::format("there are two hosts {}", in_quotes(name))};
      }
    }
  }
  if (devices == 0) return Error{"the cluster has no hosts"};
  return Status();
}

int64_t num_hosts(const Cluster& cluster) {
  int64_t count = 0;
  for (const HostGroup& group : cluster.hosts) count += group.count;
  return count;
}

Status check_size(const char* key, int32_t value) {
  if (value >= 1 && value <= kMaxClusterDevices) return Status();
  return Error{fmt::format("{} of the network is {}, not 1 to {}", key, value, kMaxClusterDevices)};
}

Status check_dragonfly(const Cluster& cluster) {
  TRIREME_TRY(check_size("hosts_per_switch", cluster.network.hosts_per_switch));
  TRIREME_TRY(check_size("switches_per_group", cluster.network.switches_per_group));
  const int64_t switches = num_hosts(cluster) / cluster.network.hosts_per_switch + 1;
  const int64_t groups = switches / cluster.network.switches_per_group + 1;
  if (switches * cluster.network.switches_per_group + groups * groups > kMaxClusterLinks) {
    return Error{fmt::format("the network has more than {} links", kMaxClusterLinks)};
  }
  return Status();
}

Status check_torus(const Cluster& cluster) {
  const Network& network = cluster.network;
  if (network.dims.empty() || network.dims.size() > 8) {
    return Error{fmt::format("a torus has 1 to 8 dims, not {}", network.dims.size())};
  }
  int64_t places = 1;
  for (const int32_t size : network.dims) {
    TRIREME_TRY(check_size("dims", size));
    places *= size;
    if (places > kMaxClusterDevices) break;
  }
  if (places == num_hosts(cluster)) return Status();
  return Error{fmt::format("the torus has {} places for {} hosts", places, num_hosts(cluster))};
}

Status check_links(const Network& network) {
  if (static_cast<int64_t>(network.links.size()) > kMaxClusterLinks) {
    return Error{fmt::format("the network has more than {} links", kMaxClusterLinks)};
  }
  for (const NetworkLink& link : network.links) {
    const std::string of =
        fmt::format("the link between {} and {}", in_quotes(link.from), in_quotes(link.to));
    if (link.from.empty() || link.from == link.to) {
      return Error{fmt::format("{} needs two different names", of)};
    }
    TRIREME_TRY(check_speed(link.speed, of));
  }
  return Status();
}

Status check_network(const Cluster& cluster) {
  const Network& network = cluster.network;
  if (network.topology == "links") return check_links(network);
  TRIREME_TRY(check_speed(network.speed, "the network"));
  if (network.topology == "fat-tree") {
    TRIREME_TRY(check_size("hosts_per_switch", network.hosts_per_switch));
    if (is_at_least(network.oversubscription, 1e-3) && network.oversubscription <= 1e6) {
      return Status();
    }
    return Error{
        fmt::format("oversubscription {} is not 0.001 to 1000000", network.oversubscription)};
  }
  if (network.topology == "dragonfly") return check_dragonfly(cluster);
  if (network.topology == "torus") return check_torus(cluster);
  if (network.topology == "nvlink-island") {
    TRIREME_TRY(check_size("hosts_per_island", network.hosts_per_island));
    return check_speed(network.island, "the islands");
  }
  return Error{
      fmt::format("unknown topology {}; known are links, fat-tree, dragonfly, torus, nvlink-island",
                  in_quotes(network.topology))};
}

}  // namespace

Status verify_cluster(const Cluster& cluster) {
  TRIREME_TRY(check_hosts(cluster));
  TRIREME_TRY(check_network(cluster));
  if (!LinkGraph(cluster).is_connected()) {
    return Error{"the links do not join all hosts; add the ones that are missing"};
  }
  return Status();
}

std::vector<const DeviceKind*> devices_of(const Cluster& cluster) {
  std::vector<const DeviceKind*> devices;
  for (const HostGroup& group : cluster.hosts) {
    const auto host = std::ranges::find(cluster.host_kinds, group.kind, &HostKind::name);
    const auto device = std::ranges::find(cluster.device_kinds, host->device, &DeviceKind::name);
    devices.insert(devices.end(), static_cast<size_t>(group.count) * host->devices, &*device);
  }
  return devices;
}

}  // namespace trireme
