#include "trireme/trace/clocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "trireme/trace/matches.h"

namespace trireme {
namespace {

// (a, b): an upper bound of o(a) - o(b).
using Bounds = std::map<std::pair<int32_t, int32_t>, SimTime>;

constexpr SimTime kUnbounded = std::numeric_limits<SimTime>::max();

class BoundsOfHosts {
 public:
  explicit BoundsOfHosts(const Timeline& timeline) : timeline_(timeline) {}

  // All of `later` end no earlier than any of `earlier` begins. Of a host's events only the last
  // begin and the first end bind.
  void add(const std::vector<int64_t>& earlier, const std::vector<int64_t>& later) {
    std::map<int32_t, SimTime> last_begin;
    std::map<int32_t, SimTime> first_end;
    for (const int64_t i : earlier) {
      const TimelineEvent& event = timeline_.events[static_cast<size_t>(i)];
      SimTime& begin = last_begin.try_emplace(host(event), event.begin).first->second;
      begin = std::max(begin, event.begin);
    }
    for (const int64_t i : later) {
      const TimelineEvent& event = timeline_.events[static_cast<size_t>(i)];
      if (event.end == kNotOver) continue;
      SimTime& end = first_end.try_emplace(host(event), event.end).first->second;
      end = std::min(end, event.end);
    }
    for (const auto& [a, begin] : last_begin) {
      for (const auto& [b, end] : first_end) {
        if (a == b) continue;
        SimTime& bound = bounds_.try_emplace({a, b}, end - begin).first->second;
        bound = std::min(bound, end - begin);
      }
    }
  }

  [[nodiscard]] const Bounds& bounds() const { return bounds_; }

 private:
  [[nodiscard]] int32_t host(const TimelineEvent& event) const {
    return timeline_.host_of_rank[static_cast<size_t>(event.rank)];
  }

  const Timeline& timeline_;
  Bounds bounds_;
};

Bounds bounds_of(const Timeline& timeline) {
  BoundsOfHosts hosts(timeline);
  const Matches matches = match_events(timeline);
  for (const TransferMatch& match : matches.transfers) {
    if (match.send >= 0 && match.receive >= 0) hosts.add({match.send}, {match.receive});
  }
  for (const CollectiveMatch& match : matches.collectives) {
    hosts.add(match.members, match.members);
  }
  return hosts.bounds();
}

// Bellman-Ford from host 0 over the edges b -> a of weight bound(a, b), or the reverse ones.
// Nothing: the bounds contradict each other.
enum class Direction { kForward, kReverse };
std::optional<std::vector<SimTime>> distances(const Bounds& bounds, size_t num_hosts,
                                              Direction direction) {
  std::vector<SimTime> distance(num_hosts, kUnbounded);
  distance[0] = 0;
  for (size_t round = 0; round <= num_hosts; ++round) {
    bool has_changed = false;
    for (const auto& [pair, bound] : bounds) {
      auto [to, from] = pair;
      if (direction == Direction::kReverse) std::swap(to, from);
      const SimTime base = distance[static_cast<size_t>(from)];
      SimTime& reached = distance[static_cast<size_t>(to)];
      if (base == kUnbounded || base + bound >= reached) continue;
      reached = base + bound;
      has_changed = true;
    }
    if (!has_changed) return distance;
  }
  return std::nullopt;
}

// Where messages do not tell: the first events are simultaneous.
std::vector<SimTime> first_events(const Timeline& timeline) {
  std::vector<SimTime> first(timeline.hosts.size(), kUnbounded);
  for (const TimelineEvent& event : timeline.events) {
    SimTime& of_host =
        first[static_cast<size_t>(timeline.host_of_rank[static_cast<size_t>(event.rank)])];
    of_host = std::min(of_host, event.begin);
  }
  return first;
}

}  // namespace

Result<std::vector<SimTime>> clock_offsets(const Timeline& timeline) {
  const size_t num_hosts = timeline.hosts.size();
  std::vector<SimTime> offsets(num_hosts, 0);
  if (num_hosts < 2) return offsets;
  const Bounds bounds = bounds_of(timeline);
  const std::optional<std::vector<SimTime>> above =
      distances(bounds, num_hosts, Direction::kForward);
  const std::optional<std::vector<SimTime>> below =
      distances(bounds, num_hosts, Direction::kReverse);
  if (!above.has_value() || !below.has_value()) {
    return Error{
        "the clocks of the hosts contradict each other: messages seem to have come before they "
        "were sent; was a clock set during the run"};
  }
  const std::vector<SimTime> first = first_events(timeline);
  for (size_t host = 1; host < num_hosts; ++host) {
    const SimTime up = (*above)[host];
    const SimTime down = (*below)[host];
    if (up != kUnbounded && down != kUnbounded) {
      // The greatest offset is `up`, the least one -`down`.
      offsets[host] = up - (up + down) / 2;
    } else if (up != kUnbounded || down != kUnbounded) {
      offsets[host] = up != kUnbounded ? up : -down;
    } else if (first[host] != kUnbounded && first[0] != kUnbounded) {
      offsets[host] = first[0] - first[host];
    }
  }
  return offsets;
}

}  // namespace trireme
