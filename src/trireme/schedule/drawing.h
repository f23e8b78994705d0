// draw: a schedule as ASCII lanes in unit time, one line a rank.
//
//   rank 0 | F0 F1 F2 F3 .  .  B0 -- B1 -- B2 -- B3 --
//
// F, Fc, R, I and W take one cell, B two (its second is "--"); "." is an idle cell. Transfers,
// reductions and updates take no time and are not drawn, so what shows is the order and the bubble.
#pragma once

#include <string>

#include "trireme/schedule/schedule.h"
#include "trireme/schedule/timetable.h"

namespace trireme {

// Other costs than the usual ones make other numbers of cells. Each line ends in a newline and has
// no trailing spaces. REQUIRES: as timetable(); a makespan that has room in memory.
[[nodiscard]] std::string draw(const Schedule& schedule, const PassCosts& costs = {});

}  // namespace trireme
