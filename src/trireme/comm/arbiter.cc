#include "trireme/comm/arbiter.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {
namespace {

bool share_a_link(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::ranges::any_of(a, [&](int32_t link) { return std::ranges::count(b, link) != 0; });
}

}  // namespace

void Arbiter::on_posted(PostedTransfer transfer, SimTime now) {
  const int64_t id = transfer.id;
  std::deque<int64_t>& queue = not_started_[transfer.communicator];
  queue.push_back(id);
  const bool is_new = transfers_
                          .emplace(id, State{.transfer = std::move(transfer),
                                             .sequence = num_posted_++,
                                             .is_next = queue.size() == 1,
                                             .next_since = now})
                          .second;
  TRIREME_CHECK(is_new, "a transfer was posted twice");
}

void Arbiter::on_receive_posted(int64_t id) { transfers_.at(id).transfer.has_receive = true; }

void Arbiter::on_started(int64_t id, SimTime now) {
  State& state = transfers_.at(id);
  std::deque<int64_t>& queue = not_started_.at(state.transfer.communicator);
  TRIREME_CHECK(!queue.empty() && queue.front() == id,
                "a transfer overtakes another of its communicator");
  queue.pop_front();
  state.has_started = true;
  if (queue.empty()) {
    not_started_.erase(state.transfer.communicator);
    return;
  }
  State& next = transfers_.at(queue.front());
  next.is_next = true;
  next.next_since = now;
}

void Arbiter::on_done(int64_t id) {
  const auto found = transfers_.find(id);
  TRIREME_CHECK(found != transfers_.end() && found->second.has_started,
                "a transfer is over that has not started");
  transfers_.erase(found);
}

bool Arbiter::is_held(const State& state, SimTime now) const {
  if (now - state.next_since >= most_hold_) return false;
  return std::ranges::any_of(transfers_, [&](const auto& entry) {
    const State& other = entry.second;
    return other.is_next && other.transfer.has_receive &&
           other.transfer.urgency < state.transfer.urgency &&
           share_a_link(other.transfer.path, state.transfer.path);
  });
}

std::vector<int64_t> Arbiter::may_start(SimTime now) const {
  std::vector<std::pair<int64_t, int64_t>> free;  // sequence, id
  for (const auto& [communicator, queue] : not_started_) {
    const State& state = transfers_.at(queue.front());
    if (!is_held(state, now)) free.emplace_back(state.sequence, queue.front());
  }
  std::ranges::sort(free);
  std::vector<int64_t> ids;
  ids.reserve(free.size());
  for (const auto& [sequence, id] : free) ids.push_back(id);
  return ids;
}

std::optional<SimTime> Arbiter::next_tick(SimTime now) const {
  std::optional<SimTime> tick;
  for (const auto& [communicator, queue] : not_started_) {
    const State& state = transfers_.at(queue.front());
    if (!is_held(state, now)) continue;
    const SimTime end = state.next_since + most_hold_;
    tick = std::min(tick.value_or(end), end);
  }
  return tick;
}

}  // namespace trireme
