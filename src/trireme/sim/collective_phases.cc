#include "trireme/sim/collective_phases.h"

#include <algorithm>
#include <bit>
#include <map>

namespace trireme {
namespace {

// Gathers hops that run side by side.
class PhaseBuilder {
 public:
  explicit PhaseBuilder(LinkGraph& links) : links_(links) {}

  // `share` of the collective's bytes goes from a device to another.
  void add_hop(int32_t from, int32_t to, double share) {
    double latency = 0;
    for (const int32_t link : links_.path(from, to)) {
      weights_[link] += share;
      latency += links_.links()[link].speed.latency;
    }
    slowest_ = std::max(slowest_, latency);
  }
  // The latencies of `steps` hops one after the other.
  CollectivePhase build(int64_t steps) {
    CollectivePhase phase{.path = {},
                          .latency = to_sim_time(slowest_ * static_cast<double>(steps))};
    for (const auto& [link, weight] : weights_) phase.path.push_back({link, weight});
    return phase;
  }

 private:
  LinkGraph& links_;
  std::map<int32_t, double> weights_;
  double slowest_ = 0;
};

void add_ring(PhaseBuilder& phase, const std::vector<int32_t>& members) {
  const size_t n = members.size();
  if (n < 2) return;
  const double share = 2.0 * static_cast<double>(n - 1) / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) phase.add_hop(members[i], members[(i + 1) % n], share);
}

CollectivePhase ring(const std::vector<int32_t>& members, LinkGraph& links) {
  PhaseBuilder phase(links);
  add_ring(phase, members);
  return phase.build(2 * (static_cast<int64_t>(members.size()) - 1));
}

// Reduce-scatter by halving, then all-gather by doubling: the same exchanges backwards.
std::vector<CollectivePhase> halving_doubling(const std::vector<int32_t>& members,
                                              LinkGraph& links) {
  std::vector<CollectivePhase> phases;
  double share = 0.5;
  for (size_t distance = std::bit_ceil(members.size()) / 2; distance > 0; distance /= 2) {
    PhaseBuilder phase(links);
    for (size_t i = 0; i < members.size(); ++i) {
      const size_t partner = i ^ distance;
      if (partner < members.size()) phase.add_hop(members[i], members[partner], share);
    }
    phases.push_back(phase.build(1));
    share /= 2;
  }
  for (size_t i = phases.size(); i-- > 0;) phases.push_back(phases[i]);
  return phases;
}

CollectivePhase tree(const std::vector<int32_t>& members, LinkGraph& links) {
  PhaseBuilder phase(links);
  for (size_t i = 1; i < members.size(); ++i) {
    const int32_t parent = members[(i - 1) / 2];
    phase.add_hop(members[i], parent, 1);
    phase.add_hop(parent, members[i], 1);
  }
  return phase.build(2 * static_cast<int64_t>(std::bit_width(members.size() - 1)));
}

std::vector<CollectivePhase> hierarchical(const std::vector<int32_t>& members, LinkGraph& links) {
  std::map<int32_t, std::vector<int32_t>> hosts;
  for (const int32_t member : members) hosts[links.host_of(member)].push_back(member);
  PhaseBuilder inside(links);
  std::vector<int32_t> firsts;
  size_t largest = 0;
  for (const auto& [host, of_host] : hosts) {
    add_ring(inside, of_host);
    firsts.push_back(of_host.front());
    largest = std::max(largest, of_host.size());
  }
  std::vector<CollectivePhase> phases;
  if (largest > 1) phases.push_back(inside.build(2 * (static_cast<int64_t>(largest) - 1)));
  if (firsts.size() > 1) phases.push_back(ring(firsts, links));
  return phases;
}

}  // namespace

std::vector<CollectivePhase> collective_phases(CollectiveAlgorithm algorithm,
                                               const std::vector<int32_t>& members,
                                               LinkGraph& links) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return {ring(members, links)};
    case CollectiveAlgorithm::kHalvingDoubling:
      return halving_doubling(members, links);
    case CollectiveAlgorithm::kTree:
      return {tree(members, links)};
    case CollectiveAlgorithm::kHierarchical:
      return hierarchical(members, links);
  }
  return {};
}

}  // namespace trireme
