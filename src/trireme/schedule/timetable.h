// timetable: when each compute action of a schedule runs if every pass costs a whole number of
// units, as papers count them: a rank runs its list in order, a send costs nothing, and what is
// sent arrives `delay` units later. Links are never busy; sim/ knows better.
//
// Its makespans are what the closed forms of the literature speak of.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme {

// Of one micro-batch in one chunk, each 0 to kMaxPassCost.
struct PassCosts {
  int64_t forward = 1;
  int64_t backward = 2;
  int64_t input_gradient = 1;
  int64_t weight_gradient = 1;
  int64_t recompute = 1;
  int64_t delay = 0;  // from the end of a pass to its use on another rank
  bool operator==(const PassCosts&) const = default;
};
inline constexpr int64_t kMaxPassCost = int64_t{1} << 40;

// 0 for U and for all that is no compute action.
[[nodiscard]] int64_t cost_of(ActionKind kind, const PassCosts& costs);

struct TimedAction {
  Action action;
  int64_t begin = 0;
  int64_t end = 0;
};

// By rank: F, Fc, R, B, I and W in the order of the list. REQUIRES: verified, and it finds nothing
// done by a step before; or a run of such steps as one (unroll.h).
[[nodiscard]] std::vector<std::vector<TimedAction>> timetable(const Schedule& schedule,
                                                              const PassCosts& costs);

// The end of the last pass.
[[nodiscard]] int64_t makespan(const std::vector<std::vector<TimedAction>>& table);

// The longest time from a rank's first pass to the end of its last: what a step takes where ranks
// do not wait for each other between steps.
[[nodiscard]] int64_t longest_span(const std::vector<std::vector<TimedAction>>& table);

}  // namespace trireme
