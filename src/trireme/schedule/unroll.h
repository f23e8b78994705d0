// unroll: the steps of an uninterrupted run as one list a rank, for what looks at time rather than
// at a step: timetable, drawing, simulator, deadlocks.
#pragma once

#include <span>

#include "trireme/schedule/schedule.h"

namespace trireme {

// One after the other on each rank. Action::batch counts batches from 0, that of the first step;
// what that one finds and the last one leaves is told as in a single step; a replica has the most
// micro-batches that it has in any of them. No text form has it, and of the rules only the one
// about deadlocks speaks of it. REQUIRES: at least one step, each verified, of the same stages,
// replicas and collectives.
[[nodiscard]] Schedule unroll(std::span<const Schedule> steps);

}  // namespace trireme
