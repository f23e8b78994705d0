#include <algorithm>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/cluster/link_graph.h"
#include "trireme/comm/pipeline_workload.h"
#include "trireme/schedule/peers.h"

namespace trireme {
namespace {

// Hops that are on their way at the same time.
class Hops {
 public:
  Hops(LinkGraph& links, std::map<int32_t, int32_t>& numbers) : links_(links), numbers_(numbers) {}

  void add(int32_t from, int32_t to) {
    const std::vector<int32_t> path = links_.path(from, to);
    double latency_s = 0;
    for (const int32_t link : path) {
      latency_s += links_.links()[static_cast<size_t>(link)].speed.latency;
      ++num_hops_[link];
    }
    latency_s_ = std::max(latency_s_, latency_s);
    paths_.push_back(path);
  }

  // Over the links of the first `num_paths` hops.
  [[nodiscard]] Route route(int32_t members, size_t num_paths) {
    Route route{
        .link = {.latency_s = latency_s_, .bytes_per_s = std::numeric_limits<double>::infinity()},
        .members = members};
    for (const auto& [link, num_hops] : num_hops_) {
      const double bandwidth = links_.links()[static_cast<size_t>(link)].speed.bandwidth;
      route.link.bytes_per_s = std::min(route.link.bytes_per_s, bandwidth / num_hops);
    }
    for (size_t i = 0; i < std::min(num_paths, paths_.size()); ++i) {
      for (const int32_t link : paths_[i]) {
        const auto next = static_cast<int32_t>(numbers_.size());
        const int32_t number = numbers_.try_emplace(link, next).first->second;
        if (std::ranges::count(route.path, number) == 0) route.path.push_back(number);
      }
    }
    return route;
  }

 private:
  LinkGraph& links_;
  std::map<int32_t, int32_t>& numbers_;  // of links that occur
  double latency_s_ = 0;
  std::map<int32_t, int32_t> num_hops_;  // by link
  std::vector<std::vector<int32_t>> paths_;
};

}  // namespace

PipelineRoutes pipeline_routes(const Schedule& schedule, const Cluster& cluster) {
  LinkGraph links(cluster);
  TRIREME_CHECK(num_ranks(schedule) <= links.num_devices(), "a rank has no device");
  const auto dp = static_cast<int32_t>(schedule.num_micro_batches.size());
  const int32_t pp = schedule.num_stages;
  PipelineRoutes routes;
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  for (int32_t stage = 0; stage < pp; ++stage) {
    routes.shares.push_back(devices[static_cast<size_t>(stage)]->core_share);
  }
  std::map<int32_t, int32_t> numbers;
  for (int32_t stage = 0; stage < pp; ++stage) {
    Hops ring(links, numbers);
    for (int32_t replica = 0; replica < dp && dp > 1; ++replica) {
      ring.add(replica * pp + stage, (replica + 1) % dp * pp + stage);
    }
    routes.sums.push_back(ring.route(dp, static_cast<size_t>(dp)));
  }
  for (int32_t virtual_stage = 0; virtual_stage + 1 < pp * schedule.num_chunks; ++virtual_stage) {
    const int32_t here = place_of(schedule, 0, virtual_stage)->rank;
    const int32_t there = place_of(schedule, 0, virtual_stage + 1)->rank;
    if (here == there) continue;
    for (const auto& [from, to] : {std::pair(here, there), std::pair(there, here)}) {
      Hops messages(links, numbers);
      for (int32_t replica = 0; replica < dp; ++replica) {
        messages.add(replica * pp + from, replica * pp + to);
      }
      routes.messages.try_emplace({from, to}, messages.route(2, 1));
    }
  }
  routes.num_links = static_cast<int32_t>(numbers.size());
  return routes;
}

}  // namespace trireme
