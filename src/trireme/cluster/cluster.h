// Cluster: hosts, their devices, and the links between them.
//
// A link has two directions that do not disturb each other. Its vertices are devices, hosts and
// switches: every device has a link to its host, and every host one or more into the network.
//
//   format: trireme-cluster-1
//   name: two boxes and a slow hop
//   device_kinds:
//     a100: {flops: {float32: 19.5e12, bfloat16: 312e12}, memory: 80e9, bandwidth: 2.0e12,
//            launch: 5e-6}
//     half: {flops: {float32: 80e9}, memory: 8e9, bandwidth: 10e9, core_share: 0.5,
//            share_period: 0.1}
//   host_kinds:
//     box: {device: a100, devices: 8, link: {bandwidth: 300e9, latency: 2e-6},
//           adapter: {bandwidth: 25e9}}       only where each device has its own
//   hosts:
//     - {name: a, kind: box}                  `count: 64` makes a0 .. a63
//     - {name: b, kind: box}
//   network:                                  one host needs none
//     topology: links                         or one of those below
//     links:
//       - {between: [a, switch], bandwidth: 25e9, latency: 5e-6}
//       - {between: [b, switch], bandwidth: 1.25e9, latency: 5e-6, cpu_per_byte: 0.4e-9}
//
// Bandwidths are bytes a second, latencies and launch seconds, memory bytes. A device with a core
// share may be used for that part of each period, as a container with a quota of processor time may
// (cpu.max of a cgroup): at full speed until the share is used up, and not before the next period
// after that. Its flops, and all that is measured of passes, are those of full speed. What
// `between` names and is no host is a switch. Topologies that are made from numbers, all with
// `bandwidth` and `latency` of a link:
//
//   fat-tree       hosts_per_switch, oversubscription [1]: leaves under one spine, whose links to a
//                  leaf have hosts_per_switch / oversubscription times the bandwidth
//   dragonfly      hosts_per_switch, switches_per_group: all switches of a group are linked, and
//                  each pair of groups by one link
//   torus          dims: [4, 4, 2]: a host a place, linked to its neighbours and around
//   nvlink-island  hosts_per_island, island_bandwidth, island_latency: fast islands, and a link of
//                  each island to one switch
//
// A path is a shortest one by the number of links, the first that a breadth-first search finds in
// the order of the file. Rank r runs on device r, counted over hosts in the order of the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

inline constexpr int64_t kMaxClusterDevices = 1 << 16;
inline constexpr int64_t kMaxClusterLinks = 1 << 20;

struct LinkSpeed {
  double bandwidth = 0;     // bytes a second, each direction
  double latency = 0;       // seconds
  double cpu_per_byte = 0;  // seconds of the device's own processor, at either end
  bool operator==(const LinkSpeed&) const = default;
};

struct DeviceKind {
  std::string name;
  std::map<std::string, double> flops = {};  // a second, by dtype
  double memory = 0;                         // bytes
  double bandwidth = 0;                      // bytes a second
  double launch = 0;                         // seconds an operator takes at least
  double core_share = 1;                     // of each period, up to all of it
  double share_period = 0.1;                 // seconds; that of Linux where nobody says
  bool operator==(const DeviceKind&) const = default;
};

struct HostKind {
  std::string name;
  std::string device;  // its kind
  int32_t devices = 1;
  LinkSpeed link;     // of each device to its host
  LinkSpeed adapter;  // of each device, around its link and its host, into the network; 0: none
  bool operator==(const HostKind&) const = default;
};

struct HostGroup {
  std::string name;
  std::string kind;
  int32_t count = 1;  // above 1 its hosts are NAME0, NAME1, ...
  bool operator==(const HostGroup&) const = default;
};

struct NetworkLink {
  std::string from;
  std::string to;
  LinkSpeed speed;
  bool operator==(const NetworkLink&) const = default;
};

struct Network {
  std::string topology = "links";
  LinkSpeed speed;                      // of the topologies that are made from numbers
  int32_t hosts_per_switch = 0;         // fat-tree, dragonfly
  double oversubscription = 1;          // fat-tree
  int32_t switches_per_group = 0;       // dragonfly
  std::vector<int32_t> dims = {};       // torus
  int32_t hosts_per_island = 0;         // nvlink-island
  LinkSpeed island;                     // the same
  std::vector<NetworkLink> links = {};  // links
  bool operator==(const Network&) const = default;
};

struct Cluster {
  std::string name;
  std::vector<DeviceKind> device_kinds;
  std::vector<HostKind> host_kinds;
  std::vector<HostGroup> hosts;
  Network network;
  bool operator==(const Cluster&) const = default;
};

// One sentence that names what does not fit. A cluster that verifies has a path between any two
// devices.
[[nodiscard]] Status verify_cluster(const Cluster& cluster);

// The kind of each device, in the order of devices. REQUIRES: it verifies, and outlives them.
[[nodiscard]] std::vector<const DeviceKind*> devices_of(const Cluster& cluster);

// Inverses of each other for every cluster that verifies.
[[nodiscard]] std::string to_text(const Cluster& cluster);
[[nodiscard]] Result<Cluster> parse_cluster(std::string_view text);

}  // namespace trireme
