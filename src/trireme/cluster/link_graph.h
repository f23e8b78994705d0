// LinkGraph: the links of a cluster one by one, and the path from a device to another.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/cluster/cluster.h"

namespace trireme {

class LinkGraph {
 public:
  // A direction of a link.
  struct Link {
    std::string from;
    std::string to;
    LinkSpeed speed;
  };

  // REQUIRES: the cluster verifies.
  explicit LinkGraph(const Cluster& cluster);

  [[nodiscard]] int32_t num_devices() const { return static_cast<int32_t>(host_of_device_.size()); }
  [[nodiscard]] int32_t host_of(int32_t device) const { return host_of_device_[device]; }
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }

  // Those before it are of devices; from it on, each is followed by its other direction.
  [[nodiscard]] size_t first_network_link() const { return first_network_link_; }

  [[nodiscard]] std::vector<double> bandwidths() const;  // of links()

  // Indices into links(), from the first device to the second; empty when they are the same.
  [[nodiscard]] std::vector<int32_t> path(int32_t from, int32_t to);
  // Whether the network joins all hosts.
  [[nodiscard]] bool is_connected();

 private:
  struct Edge {
    int32_t to = 0;
    int32_t link = 0;
  };
  int32_t add_vertex(std::string name);
  // The links of a device to its host, or to the network there; the index of the first.
  int32_t attach(const std::string& device, const std::string& to, const LinkSpeed& speed);
  void join(int32_t a, int32_t b, const LinkSpeed& speed);
  void add_network(const Network& network);
  void add_fat_tree(const Network& network);
  void add_dragonfly(const Network& network);
  void add_torus(const Network& network);
  void add_islands(const Network& network);
  // By vertex: the edge by which a breadth-first search from the host comes to it.
  const std::vector<Edge>& search_from(int32_t host);

  std::vector<std::string> hosts_;  // vertices 0, 1, ...
  std::vector<int32_t> host_of_device_;
  // By device, the link that leaves it; the one back is next. -1: it has no adapter.
  std::vector<int32_t> link_of_device_;
  std::vector<int32_t> adapter_of_device_;
  std::vector<std::string> vertices_;     // hosts and switches
  std::vector<std::vector<Edge>> edges_;  // by vertex
  std::vector<Link> links_;
  size_t first_network_link_ = 0;
  std::unordered_map<int32_t, std::vector<Edge>> searches_;  // by host
};

}  // namespace trireme
