#include "trireme/cluster/measured_cluster.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "trireme/cluster/link_graph.h"

namespace trireme {

Cluster with_measured_links(const Cluster& cluster, std::span<const MeasuredPath> paths) {
  LinkGraph graph(cluster);
  const std::vector<LinkGraph::Link>& links = graph.links();
  std::vector<double> fastest(links.size(), 0);  // relative; 0: no path goes over it
  for (const MeasuredPath& path : paths) {
    double expected = std::numeric_limits<double>::infinity();
    const std::vector<int32_t> on_path = graph.path(path.from, path.to);
    for (const int32_t link : on_path) expected = std::min(expected, links[link].speed.bandwidth);
    for (const int32_t link : on_path) {
      fastest[link] = std::max(fastest[link], path.bytes_per_s / expected);
    }
  }
  Cluster measured = cluster;
  measured.network = {.topology = "links", .speed = {}, .island = {}};
  for (size_t there = graph.first_network_link(); there < links.size(); there += 2) {
    NetworkLink link{.from = links[there].from, .to = links[there].to, .speed = links[there].speed};
    double factor = 1;
    if (fastest[there] > 0 && fastest[there + 1] > 0) {
      factor = std::min(fastest[there], fastest[there + 1]);
    } else if (fastest[there] > 0 || fastest[there + 1] > 0) {
      factor = std::max(fastest[there], fastest[there + 1]);
    }
    link.speed.bandwidth *= factor;
    measured.network.links.push_back(std::move(link));
  }
  return measured;
}

Cluster star_of(const DeviceKind& device, int32_t num_devices, const LinkSpeed& link) {
  constexpr double kUnlimited = 1e13;
  Cluster star{.name = "hosts of one rank", .device_kinds = {device}};
  star.host_kinds = {{.name = "host", .device = device.name, .link = {.bandwidth = kUnlimited}}};
  for (int32_t i = 0; i < num_devices; ++i) {
    const std::string name = fmt::format("h{}", i);
    star.hosts.push_back({.name = name, .kind = "host"});
    star.network.links.push_back({.from = name, .to = "switch", .speed = link});
  }
  return star;
}

}  // namespace trireme
