#include "trireme/sim/collective_phases.h"

#include <algorithm>
#include <bit>
#include <iterator>
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

// `passes` times (n-1)/n of `share` over each hop: 1 is a reduce-scatter or an all-gather.
void add_ring(PhaseBuilder& phase, const std::vector<int32_t>& members, double passes,
              double share = 1) {
  const size_t n = members.size();
  if (n < 2) return;
  const double each = passes * share * static_cast<double>(n - 1) / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) phase.add_hop(members[i], members[(i + 1) % n], each);
}

std::vector<CollectivePhase> ring(const std::vector<int32_t>& members, LinkGraph& links) {
  PhaseBuilder phase(links);
  add_ring(phase, members, 2);
  return {phase.build(2 * (static_cast<int64_t>(members.size()) - 1))};
}

std::vector<CollectivePhase> halving_doubling(const std::vector<int32_t>& members,
                                              LinkGraph& links) {
  const size_t whole = std::bit_floor(members.size());
  std::vector<CollectivePhase> phases;
  double share = 0.5;
  for (size_t distance = whole / 2; distance > 0; distance /= 2) {
    PhaseBuilder phase(links);
    for (size_t i = 0; i < whole; ++i) phase.add_hop(members[i], members[i ^ distance], share);
    phases.push_back(phase.build(1));
    share /= 2;
  }
  // Partners meet again in reverse.
  for (size_t i = phases.size(); i-- > 0;) phases.push_back(phases[i]);
  if (whole == members.size()) return phases;
  PhaseBuilder in(links);
  PhaseBuilder out(links);
  for (size_t i = whole; i < members.size(); ++i) {
    in.add_hop(members[i], members[i - whole], 1);
    out.add_hop(members[i - whole], members[i], 1);
  }
  phases.insert(phases.begin(), in.build(1));
  phases.push_back(out.build(1));
  return phases;
}

std::vector<CollectivePhase> tree(const std::vector<int32_t>& members, LinkGraph& links) {
  std::vector<CollectivePhase> up;
  std::vector<CollectivePhase> down;
  for (size_t distance = 1; distance < members.size(); distance *= 2) {
    PhaseBuilder reduce(links);
    PhaseBuilder broadcast(links);
    for (size_t i = distance; i < members.size(); i += 2 * distance) {
      reduce.add_hop(members[i], members[i - distance], 1);
      broadcast.add_hop(members[i - distance], members[i], 1);
    }
    up.push_back(reduce.build(1));
    down.push_back(broadcast.build(1));
  }
  up.insert(up.end(), down.rbegin(), down.rend());
  return up;
}

std::vector<CollectivePhase> hierarchical(const std::vector<int32_t>& members, LinkGraph& links) {
  std::map<int32_t, std::vector<int32_t>> hosts;
  size_t most = 0;
  for (const int32_t member : members) {
    std::vector<int32_t>& of_host = hosts[links.host_of(member)];
    of_host.push_back(member);
    most = std::max(most, of_host.size());
  }
  PhaseBuilder inside(links);
  for (const auto& [host, of_host] : hosts) add_ring(inside, of_host, 1);
  PhaseBuilder between(links);
  // A host with fewer members has some in several rings.
  for (size_t part = 0; part < most; ++part) {
    std::vector<int32_t> ring_of_part;
    for (const auto& [host, of_host] : hosts)
      ring_of_part.push_back(of_host[part % of_host.size()]);
    add_ring(between, ring_of_part, 2, 1 / static_cast<double>(most));
  }
  const CollectivePhase scatter = inside.build(static_cast<int64_t>(most) - 1);
  std::vector<CollectivePhase> phases;
  if (most > 1) phases.push_back(scatter);
  if (hosts.size() > 1) phases.push_back(between.build(2 * (std::ssize(hosts) - 1)));
  if (most > 1) phases.push_back(scatter);
  return phases;
}

}  // namespace

std::vector<CollectivePhase> collective_phases(CollectiveAlgorithm algorithm,
                                               const std::vector<int32_t>& members,
                                               LinkGraph& links) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return ring(members, links);
    case CollectiveAlgorithm::kHalvingDoubling:
      return halving_doubling(members, links);
    case CollectiveAlgorithm::kTree:
      return tree(members, links);
    case CollectiveAlgorithm::kHierarchical:
      return hierarchical(members, links);
  }
  return {};
}

}  // namespace trireme
