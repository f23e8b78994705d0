// rehearse_rank(): one rank of `trireme rehearse`: executor, transport and recorder of training
// over emulated kernels.
//
// Before each step and after the last one the ranks tell each other how long the step before took
// them, which also lets them begin together: a step lasts from there to the end of its last rank.
// The first step warms up and does not count.
//
// Steps that overlap are run without a break: one lasts from the end of the one before to its own,
// in the mean of the ranks. The first two fill the pipeline and the last has nothing to run ahead;
// they do not count.
//
// Rank 0 publishes each step, and the result:
//
//   {"event": "result", "simulated_step_ns", "rehearsed_step_ns": the median, "steps_ns": [...],
//    "ranks": [{"rank", "compute_ns", "late_ns", "wait_ns", "simulated_wait_ns"}], "notes": [...]}
//
// The numbers of a rank are means over the steps: how long passes have held it, how much of that
// was beyond their costs (exec/emulated_kernels.h), and the rest of the step.
#pragma once

#include "trireme/worker/rank_loop.h"

namespace trireme {

// REQUIRES: the setup of a rehearsal.
[[nodiscard]] RankOutcome rehearse_rank(const RunSetup& setup, const RankContext& context);

}  // namespace trireme
