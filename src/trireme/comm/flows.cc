#include "trireme/comm/flows.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr int64_t kPartsOfNanosecond = 256;

bool is_among(int32_t value, const std::vector<int32_t>& values) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace

void Flows::settle(SimTime now) {
  for (Running& running : running_) {
    if (running.share == 0) continue;
    const int64_t served = (now - last_) * kPartsOfNanosecond / running.share;
    running.left = std::max<int64_t>(0, running.left - served);
  }
  last_ = now;
}

void Flows::reshare(SimTime now) {
  std::vector<int32_t> lanes;         // whose first flow has been seen
  std::vector<int32_t> urgent_links;  // that urgent flows leave their sender by
  for (Running& running : running_) {
    const bool waits_its_turn = running.flow.in_turn && is_among(running.flow.lane, lanes);
    if (running.flow.in_turn && !waits_its_turn) lanes.push_back(running.flow.lane);
    running.share = waits_its_turn || running.startup_end > now ? 0 : 1;
    if (running.share != 0 && running.flow.is_urgent && !running.flow.path->empty()) {
      urgent_links.push_back(running.flow.path->front());
    }
  }
  std::ranges::fill(num_on_link_, 0);
  for (Running& running : running_) {
    if (running.share == 0) continue;
    const std::vector<int32_t>& path = *running.flow.path;
    if (!running.flow.is_urgent &&
        std::ranges::any_of(path, [&](int32_t link) { return is_among(link, urgent_links); })) {
      running.share = 0;
      continue;
    }
    for (const int32_t link : path) ++num_on_link_[static_cast<size_t>(link)];
  }
  for (Running& running : running_) {
    if (running.share == 0) continue;
    for (const int32_t link : *running.flow.path) {
      running.share = std::max(running.share, num_on_link_[static_cast<size_t>(link)]);
    }
  }
}

void Flows::start(const Flow& flow, SimTime now) {
  settle(now);
  running_.push_back({.flow = flow,
                      .startup_end = now + flow.cost.startup,
                      .left = flow.cost.on_link * kPartsOfNanosecond});
  reshare(now);
}

SimTime Flows::next_event() const {
  SimTime next = kNever;
  for (const Running& running : running_) {
    if (running.startup_end > last_) {
      next = std::min(next, running.startup_end);
    } else if (running.share != 0) {
      const int64_t left = running.left * running.share;
      next = std::min(next, last_ + (left + kPartsOfNanosecond - 1) / kPartsOfNanosecond);
    }
  }
  return next;
}

std::vector<int64_t> Flows::advance(SimTime now) {
  settle(now);
  std::vector<int64_t> arrived;
  std::vector<int32_t> busy_lanes;
  std::vector<Running> kept;
  for (const Running& running : running_) {
    const bool waits_its_turn = running.flow.in_turn && is_among(running.flow.lane, busy_lanes);
    if (!waits_its_turn && running.startup_end <= now && running.left == 0) {
      arrived.push_back(running.flow.id);
      continue;
    }
    if (running.flow.in_turn && !waits_its_turn) busy_lanes.push_back(running.flow.lane);
    kept.push_back(running);
  }
  running_ = std::move(kept);
  reshare(now);
  return arrived;
}

}  // namespace trireme
