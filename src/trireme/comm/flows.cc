#include "trireme/comm/flows.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr int64_t kPartsOfNanosecond = 256;

bool is_among(int32_t value, const std::vector<int32_t>& values) {
  return std::ranges::find(values, value) != values.end();
}

// Calls `visit` for every flow that does not wait for its turn.
template <typename Lanes, typename Visit>
void for_each_in_turn(Lanes& lanes, const Visit& visit) {
  for (auto& [lane, flows] : lanes) {
    const size_t num_flows = flows.front().flow.in_turn ? 1 : flows.size();
    for (size_t i = 0; i < num_flows; ++i) visit(flows[i]);
  }
}

}  // namespace

void Flows::settle(SimTime now) {
  for_each_in_turn(lanes_, [&](Running& running) {
    if (running.share == 0) return;
    const int64_t served = (now - last_) * kPartsOfNanosecond / running.share;
    running.left = std::max<int64_t>(0, running.left - served);
  });
  last_ = now;
}

void Flows::reshare(SimTime now) {
  std::vector<int32_t> urgent_links;  // that urgent flows leave their sender by
  for_each_in_turn(lanes_, [&](Running& running) {
    running.share = running.startup_end > now ? 0 : 1;
    if (running.share != 0 && running.flow.is_urgent && !running.flow.path->empty()) {
      urgent_links.push_back(running.flow.path->front());
    }
  });
  std::ranges::fill(num_on_link_, 0);
  for_each_in_turn(lanes_, [&](Running& running) {
    if (running.share == 0) return;
    const std::vector<int32_t>& path = *running.flow.path;
    if (!running.flow.is_urgent &&
        std::ranges::any_of(path, [&](int32_t link) { return is_among(link, urgent_links); })) {
      running.share = 0;
      return;
    }
    for (const int32_t link : path) ++num_on_link_[static_cast<size_t>(link)];
  });
  for_each_in_turn(lanes_, [&](Running& running) {
    if (running.share == 0) return;
    for (const int32_t link : *running.flow.path) {
      running.share = std::max(running.share, num_on_link_[static_cast<size_t>(link)]);
    }
  });
}

void Flows::start(const Flow& flow, SimTime now) {
  settle(now);
  lanes_[flow.lane].push_back({.flow = flow,
                               .sequence = num_started_++,
                               .startup_end = now + flow.cost.startup,
                               .left = flow.cost.on_link * kPartsOfNanosecond});
  reshare(now);
}

SimTime Flows::next_event() const {
  SimTime next = kNever;
  for_each_in_turn(lanes_, [&](const Running& running) {
    if (running.startup_end > last_) {
      next = std::min(next, running.startup_end);
    } else if (running.share != 0) {
      const int64_t left = running.left * running.share;
      next = std::min(next, last_ + (left + kPartsOfNanosecond - 1) / kPartsOfNanosecond);
    }
  });
  return next;
}

std::vector<int64_t> Flows::advance(SimTime now) {
  settle(now);
  std::vector<std::pair<int64_t, int64_t>> arrived;  // sequence, id
  const auto is_over = [&](const Running& running) {
    if (running.startup_end > now || running.left > 0) return false;
    arrived.emplace_back(running.sequence, running.flow.id);
    return true;
  };
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    std::deque<Running>& flows = lane->second;
    if (flows.front().flow.in_turn) {
      while (!flows.empty() && is_over(flows.front())) flows.pop_front();
    } else {
      std::erase_if(flows, is_over);
    }
    lane = flows.empty() ? lanes_.erase(lane) : std::next(lane);
  }
  reshare(now);
  std::ranges::sort(arrived);
  std::vector<int64_t> ids;
  ids.reserve(arrived.size());
  for (const auto& [sequence, id] : arrived) ids.push_back(id);
  return ids;
}

}  // namespace trireme
