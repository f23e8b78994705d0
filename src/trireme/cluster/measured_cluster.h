// A cluster whose links are as they were measured, path by path.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/cluster/cluster.h"

namespace trireme {

// From a device to another one.
struct MeasuredPath {
  int32_t from = 0;
  int32_t to = 0;
  double bytes_per_s = 0;
};

// The same hosts, with a network of links. A path is as fast as the slowest link of it, so a link
// is at least as fast as the fastest path over it; that is taken for its speed, relative to what
// the cluster says. Of the two directions the slower one counts. Links that no path goes over,
// those within hosts, adapters and latencies stay. REQUIRES: it verifies, and has these devices.
[[nodiscard]] Cluster with_measured_links(const Cluster& cluster,
                                          std::span<const MeasuredPath> paths);

// As many hosts as devices, with one each, around a switch; what is within a host costs nothing.
[[nodiscard]] Cluster star_of(const DeviceKind& device, int32_t num_devices, const LinkSpeed& link);

}  // namespace trireme
