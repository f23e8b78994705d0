#include "trireme/sim/fluid_network.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "trireme/base/check.h"

namespace trireme {
namespace {

// Sums of rates and weights are exact to about this part.
constexpr double kRounding = 1e-12;

}  // namespace

FluidNetwork::FluidNetwork(std::vector<double> capacities) : links_(capacities.size()) {
  for (size_t i = 0; i < capacities.size(); ++i) links_[i].capacity = capacities[i];
}

bool FluidNetwork::could_be_full(const Link& link) const {
  return link.wanted > link.capacity * (1 + 1e-9);
}

void FluidNetwork::start(SimTime now, int32_t id, std::span<const LinkUse> path, double bytes,
                         int32_t priority) {
  if (static_cast<size_t>(id) >= flows_.size()) flows_.resize(static_cast<size_t>(id) + 1);
  Flow& flow = flows_[id];
  TRIREME_CHECK(flow.path.empty() && !path.empty(), "the id of a flow is free, its path is not");
  flow.path = path;
  flow.remaining = bytes;
  flow.since = now;
  flow.priority = priority;
  flow.rate = 0;
  flow.bound = std::numeric_limits<double>::infinity();
  for (const LinkUse& use : path) {
    flow.bound = std::min(flow.bound, links_[use.link].capacity / use.weight);
  }
  for (const LinkUse& use : path) {
    Link& link = links_[use.link];
    link.wanted += use.weight * flow.bound;
    link.flows.push_back(id);
  }
  collect(id);
  share(now);
}

std::optional<FluidNetwork::Completion> FluidNetwork::next() {
  while (!queue_.empty()) {
    const Entry& entry = queue_.top();
    if (flows_[entry.flow].version == entry.version && !flows_[entry.flow].path.empty()) {
      return Completion{.time = entry.time, .flow = entry.flow};
    }
    queue_.pop();
  }
  return std::nullopt;
}

FluidNetwork::Completion FluidNetwork::pop() {
  const std::optional<Completion> completion = next();
  TRIREME_CHECK(completion.has_value(), "no flow is left");
  queue_.pop();
  const int32_t id = completion->flow;
  collect(id);  // by the links as they were with it
  Flow& flow = flows_[id];
  for (const LinkUse& use : flow.path) {
    Link& link = links_[use.link];
    link.carried += use.weight * flow.remaining;
    link.flows.erase(std::ranges::find(link.flows, id));
    link.wanted = link.flows.empty() ? 0 : link.wanted - use.weight * flow.bound;
  }
  flow.path = {};
  ++flow.version;
  affected_.erase(affected_.begin());
  share(completion->time);
  return *completion;
}

void FluidNetwork::collect(int32_t id) {
  ++mark_;
  affected_.assign(1, id);
  affected_links_.clear();
  flows_[id].mark = mark_;
  for (size_t i = 0; i < affected_.size(); ++i) {
    for (const LinkUse& use : flows_[affected_[i]].path) {
      Link& link = links_[use.link];
      if (link.mark == mark_ || !could_be_full(link)) continue;
      link.mark = mark_;
      affected_links_.push_back(use.link);
      for (const int32_t other : link.flows) {
        if (flows_[other].mark == mark_) continue;
        flows_[other].mark = mark_;
        affected_.push_back(other);
      }
    }
  }
}

void FluidNetwork::share(SimTime now) {
  for (const int32_t link : affected_links_) links_[link].left = links_[link].capacity;
  // Ids in ascending order within a priority, so that the result does not depend on the history.
  std::ranges::sort(affected_, [this](int32_t a, int32_t b) {
    return flows_[a].priority != flows_[b].priority ? flows_[a].priority > flows_[b].priority
                                                    : a < b;
  });
  for (size_t begin = 0; begin < affected_.size();) {
    size_t end = begin;
    while (end < affected_.size() &&
           flows_[affected_[end]].priority == flows_[affected_[begin]].priority) {
      ++end;
    }
    fill(std::span(affected_).subspan(begin, end - begin));
    begin = end;
  }
  for (const int32_t id : affected_) set_rate(now, id, flows_[id].new_rate);
}

// Raises all rates together until a link is full or a flow has all that it could use; fixes those,
// and goes on with the others.
void FluidNetwork::fill(std::span<const int32_t> flows) {
  for (const int32_t link : affected_links_) links_[link].weight = 0;
  for (const int32_t id : flows) {
    flows_[id].is_fixed = false;
    for (const LinkUse& use : flows_[id].path) {
      if (links_[use.link].mark == mark_) links_[use.link].weight += use.weight;
    }
  }
  const auto fix = [this](Flow& flow, double rate) {
    flow.is_fixed = true;
    flow.new_rate = rate;
    for (const LinkUse& use : flow.path) {
      Link& link = links_[use.link];
      if (link.mark != mark_) continue;
      link.left = std::max(0.0, link.left - use.weight * rate);
      link.weight -= use.weight;
    }
  };
  size_t num_left = flows.size();
  while (num_left > 0) {
    double level = std::numeric_limits<double>::infinity();
    for (const int32_t id : affected_links_) {
      const Link& link = links_[id];
      if (link.weight > kRounding) level = std::min(level, link.left / link.weight);
    }
    for (const int32_t id : flows) {
      if (!flows_[id].is_fixed) level = std::min(level, flows_[id].bound);
    }
    const size_t before = num_left;
    const double limit = level * (1 + kRounding);
    for (const int32_t id : flows) {
      Flow& flow = flows_[id];
      if (flow.is_fixed) continue;
      const bool is_stopped =
          flow.bound <= limit || std::ranges::any_of(flow.path, [&](const LinkUse& use) {
            const Link& link = links_[use.link];
            return link.mark == mark_ && link.weight > kRounding &&
                   link.left / link.weight <= limit;
          });
      if (!is_stopped) continue;
      // The level, not what the link has left by now: the same for all that stop at it.
      fix(flow, level);
      --num_left;
    }
    TRIREME_CHECK(num_left < before, "a level of max-min sharing stops a flow");
  }
}

void FluidNetwork::set_rate(SimTime now, int32_t id, double rate) {
  Flow& flow = flows_[id];
  if (rate == flow.rate && flow.since != now) return;
  const double passed = std::min(flow.remaining, flow.rate * to_seconds(now - flow.since));
  flow.remaining -= passed;
  for (const LinkUse& use : flow.path) links_[use.link].carried += use.weight * passed;
  flow.since = now;
  flow.rate = rate;
  ++flow.version;
  if (rate <= 0) return;  // what has priority leaves it nothing: it waits
  const double nanoseconds = std::ceil(flow.remaining / rate * 1e9 - 1e-6);
  constexpr double kLatest = 9e18;  // the end of SimTime
  const SimTime end =
      now + static_cast<SimTime>(std::clamp(nanoseconds, 0.0, kLatest - static_cast<double>(now)));
  queue_.push({.time = end, .order = order_++, .flow = id, .version = flow.version});
}

}  // namespace trireme
