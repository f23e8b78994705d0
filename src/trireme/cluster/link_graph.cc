#include "trireme/cluster/link_graph.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/check.h"

namespace trireme {

LinkGraph::LinkGraph(const Cluster& cluster) {
  std::vector<const HostKind*> kinds;
  for (const HostGroup& group : cluster.hosts) {
    const auto kind = std::ranges::find(cluster.host_kinds, group.kind, &HostKind::name);
    TRIREME_CHECK(kind != cluster.host_kinds.end(), "a host of an unknown kind");
    for (int32_t i = 0; i < group.count; ++i) {
      hosts_.push_back(group.count == 1 ? group.name : fmt::format("{}{}", group.name, i));
      add_vertex(hosts_.back());
      kinds.push_back(&*kind);
    }
  }
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (int32_t i = 0; i < kinds[host]->devices; ++i) {
      const std::string device = fmt::format("{}:{}", hosts_[host], i);
      host_of_device_.push_back(static_cast<int32_t>(host));
      link_of_device_.push_back(attach(device, hosts_[host], kinds[host]->link));
      const LinkSpeed& adapter = kinds[host]->adapter;
      adapter_of_device_.push_back(
          adapter == LinkSpeed() ? -1 : attach(device, hosts_[host] + " adapter", adapter));
    }
  }
  first_network_link_ = links_.size();
  add_network(cluster.network);
}

int32_t LinkGraph::add_vertex(std::string name) {
  vertices_.push_back(std::move(name));
  edges_.emplace_back();
  return static_cast<int32_t>(vertices_.size()) - 1;
}

int32_t LinkGraph::attach(const std::string& device, const std::string& to,
                          const LinkSpeed& speed) {
  links_.push_back({device, to, speed});
  links_.push_back({to, device, speed});
  return static_cast<int32_t>(links_.size()) - 2;
}

void LinkGraph::join(int32_t a, int32_t b, const LinkSpeed& speed) {
  edges_[a].push_back({.to = b, .link = static_cast<int32_t>(links_.size())});
  links_.push_back({vertices_[a], vertices_[b], speed});
  edges_[b].push_back({.to = a, .link = static_cast<int32_t>(links_.size())});
  links_.push_back({vertices_[b], vertices_[a], speed});
}

void LinkGraph::add_network(const Network& network) {
  if (network.topology == "fat-tree") return add_fat_tree(network);
  if (network.topology == "dragonfly") return add_dragonfly(network);
  if (network.topology == "torus") return add_torus(network);
  if (network.topology == "nvlink-island") return add_islands(network);
  std::unordered_map<std::string, int32_t> vertex_of;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    vertex_of[hosts_[host]] = static_cast<int32_t>(host);
  }
  const auto vertex = [&](const std::string& name) {
    const auto known = vertex_of.find(name);
    if (known != vertex_of.end()) return known->second;
    return vertex_of[name] = add_vertex(name);
  };
  for (const NetworkLink& link : network.links) {
    const int32_t from = vertex(link.from);
    join(from, vertex(link.to), link.speed);
  }
}

void LinkGraph::add_fat_tree(const Network& network) {
  const auto num_hosts = static_cast<int32_t>(hosts_.size());
  LinkSpeed up = network.speed;
  up.bandwidth *= network.hosts_per_switch / network.oversubscription;
  const int32_t spine = num_hosts > network.hosts_per_switch ? add_vertex("spine") : -1;
  int32_t leaf = -1;
  for (int32_t host = 0; host < num_hosts; ++host) {
    if (host % network.hosts_per_switch == 0) {
      leaf = add_vertex(fmt::format("leaf{}", host / network.hosts_per_switch));
      if (spine >= 0) join(leaf, spine, up);
    }
    join(host, leaf, network.speed);
  }
}

void LinkGraph::add_dragonfly(const Network& network) {
  const auto num_hosts = static_cast<int32_t>(hosts_.size());
  const int32_t num_switches =
      (num_hosts + network.hosts_per_switch - 1) / network.hosts_per_switch;
  const int32_t per_group = network.switches_per_group;
  const auto switch_at = [num_hosts](int32_t i) { return num_hosts + i; };
  for (int32_t i = 0; i < num_switches; ++i) add_vertex(fmt::format("switch{}", i));
  for (int32_t host = 0; host < num_hosts; ++host) {
    join(host, switch_at(host / network.hosts_per_switch), network.speed);
  }
  for (int32_t a = 0; a < num_switches; ++a) {
    for (int32_t b = a + 1; b < num_switches && b / per_group == a / per_group; ++b) {
      join(switch_at(a), switch_at(b), network.speed);
    }
  }
  // The link of a pair of groups ends at other switches than those of the pairs before it.
  const int32_t num_groups = (num_switches + per_group - 1) / per_group;
  const auto end_in = [&](int32_t group, int32_t other) {
    const int32_t size = std::min(per_group, num_switches - group * per_group);
    return group * per_group + (other > group ? other - 1 : other) % size;
  };
  for (int32_t a = 0; a < num_groups; ++a) {
    for (int32_t b = a + 1; b < num_groups; ++b) {
      join(switch_at(end_in(a, b)), switch_at(end_in(b, a)), network.speed);
    }
  }
}

void LinkGraph::add_torus(const Network& network) {
  int32_t stride = 1;
  for (const int32_t size : network.dims) {
    for (int32_t host = 0; host < static_cast<int32_t>(hosts_.size()); ++host) {
      const int32_t place = host / stride % size;
      // Two places have one link between them, not two.
      if (size == 1 || (size == 2 && place == 1)) continue;
      join(host, host + ((place + 1) % size - place) * stride, network.speed);
    }
    stride *= size;
  }
}

void LinkGraph::add_islands(const Network& network) {
  const auto num_hosts = static_cast<int32_t>(hosts_.size());
  const int32_t middle = add_vertex("switch");
  int32_t island = -1;
  for (int32_t host = 0; host < num_hosts; ++host) {
    if (host % network.hosts_per_island == 0) {
      island = add_vertex(fmt::format("island{}", host / network.hosts_per_island));
      join(island, middle, network.speed);
    }
    join(host, island, network.island);
  }
}

const std::vector<LinkGraph::Edge>& LinkGraph::search_from(int32_t host) {
  constexpr size_t kMaxRemembered = size_t{1} << 24;  // edges
  if (searches_.size() * vertices_.size() > kMaxRemembered) searches_.clear();
  const auto [entry, is_new] = searches_.try_emplace(host);
  if (!is_new) return entry->second;
  std::vector<Edge>& by = entry->second;
  by.assign(vertices_.size(), {.to = -1, .link = -1});
  // `to` holds where the search came from.
  by[host].to = host;
  std::deque<int32_t> pending = {host};
  while (!pending.empty()) {
    const int32_t at = pending.front();
    pending.pop_front();
    for (const Edge& edge : edges_[at]) {
      if (by[edge.to].to >= 0) continue;
      by[edge.to] = {.to = at, .link = edge.link};
      pending.push_back(edge.to);
    }
  }
  return by;
}

std::vector<double> LinkGraph::bandwidths() const {
  std::vector<double> bandwidths;
  for (const Link& link : links_) bandwidths.push_back(link.speed.bandwidth);
  return bandwidths;
}

std::vector<int32_t> LinkGraph::path(int32_t from, int32_t to) {
  if (from == to) return {};
  const int32_t first = host_of_device_[from];
  const int32_t last = host_of_device_[to];
  if (first == last) return {link_of_device_[from], link_of_device_[to] + 1};
  const auto way_out = [this](int32_t device) {
    const int32_t adapter = adapter_of_device_[device];
    return adapter >= 0 ? adapter : link_of_device_[device];
  };
  std::vector<int32_t> path = {way_out(to) + 1};
  const std::vector<Edge>& by = search_from(first);
  for (int32_t at = last; at != first; at = by[at].to) {
    TRIREME_CHECK(by[at].link >= 0, "hosts that no link joins");
    path.push_back(by[at].link);
  }
  path.push_back(way_out(from));
  std::ranges::reverse(path);
  return path;
}

bool LinkGraph::is_connected() {
  const std::vector<Edge>& by = search_from(0);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (by[host].to < 0) return false;
  }
  return true;
}

}  // namespace trireme
