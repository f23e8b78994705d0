#include "trireme/schedule/timetable.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/schedule/peers.h"

namespace trireme {
namespace {

// Runs the lists in rounds until all have ended.
class Clock {
 public:
  Clock(const Schedule& schedule, const PassCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        places_(schedule.ranks.size(), 0),
        times_(schedule.ranks.size(), 0),
        table_(schedule.ranks.size()) {}

  std::vector<std::vector<TimedAction>> run() {
    while (true) {
      bool is_done = true;
      bool has_moved = false;
      for (size_t rank = 0; rank < table_.size(); ++rank) {
        while (places_[rank] < schedule_.ranks[rank].size() && advance(rank)) has_moved = true;
        is_done = is_done && places_[rank] == schedule_.ranks[rank].size();
      }
      if (is_done) return std::move(table_);
      TRIREME_CHECK(has_moved, "a schedule that deadlocks has no times");
    }
  }

 private:
  // Runs the rank's next action. False when it waits for a send that has no time yet.
  bool advance(size_t rank) {
    const Action& action = schedule_.ranks[rank][places_[rank]];
    int64_t& time = times_[rank];
    const auto number = static_cast<int32_t>(rank);
    const std::optional<Counterpart> other = counterpart(schedule_, number, action);
    if (is_send(action.kind)) {
      sent_at_[{number, action.kind, action.index, action.chunk, action.batch}] = time;
    } else if (other) {
      const Action& send = other->action;
      const auto found =
          sent_at_.find({other->rank, send.kind, send.index, send.chunk, send.batch});
      if (found == sent_at_.end()) return false;
      time = std::max(time, found->second + costs_.delay);
    } else if (is_compute(action.kind) && action.kind != ActionKind::kUpdate) {
      const int64_t end = time + cost_of(action.kind, costs_);
      table_[rank].push_back({action, time, end});
      time = end;
    }
    ++places_[rank];
    return true;
  }

  const Schedule& schedule_;
  const PassCosts& costs_;
  std::vector<size_t> places_;  // by rank: the next action
  std::vector<int64_t> times_;  // by rank: when it is free
  std::vector<std::vector<TimedAction>> table_;
  // By sender, kind, index, chunk and batch.
  std::map<std::tuple<int32_t, ActionKind, int32_t, int32_t, int32_t>, int64_t> sent_at_;
};

}  // namespace

int64_t cost_of(ActionKind kind, const PassCosts& costs) {
  switch (kind) {
    case ActionKind::kForward:
    case ActionKind::kForwardKeepingInput:
      return costs.forward;
    case ActionKind::kRecompute:
      return costs.recompute;
    case ActionKind::kBackward:
      return costs.backward;
    case ActionKind::kInputGradient:
      return costs.input_gradient;
    case ActionKind::kWeightGradient:
      return costs.weight_gradient;
    default:
      return 0;
  }
}

std::vector<std::vector<TimedAction>> timetable(const Schedule& schedule, const PassCosts& costs) {
  return Clock(schedule, costs).run();
}

int64_t makespan(const std::vector<std::vector<TimedAction>>& table) {
  int64_t end = 0;
  for (const std::vector<TimedAction>& lane : table) {
    if (!lane.empty()) end = std::max(end, lane.back().end);
  }
  return end;
}

int64_t longest_span(const std::vector<std::vector<TimedAction>>& table) {
  int64_t span = 0;
  for (const std::vector<TimedAction>& lane : table) {
    if (!lane.empty()) span = std::max(span, lane.back().end - lane.front().begin);
  }
  return span;
}

}  // namespace trireme
