// verify_schedule: the rules every Schedule meets before anything runs it. Production code: it runs
// on every Schedule, whoever made it, and the runtime takes verified Schedules only. The rules are
// one table in verify.cc.
#pragma once

#include <span>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// The first rule that is broken, in one sentence that names rank, action, and what was expected,
// such as: rank 1 misses the backward of micro-batch 3 (4 of 4 forwards seen).
[[nodiscard]] Status verify_schedule(const Schedule& schedule);

// The same for the steps of an uninterrupted run, in their order: each by itself, that each finds
// what the one before leaves, and that no rank waits for ever in all of them together. REQUIRES: a
// step.
[[nodiscard]] Status verify_run(std::span<const Schedule> steps);

// The first of these rules alone: everything but the lists of the ranks.
[[nodiscard]] Status verify_shape(const Schedule& schedule);

// What a micro-batch chunk counts for.
struct InFlightWeights {
  int32_t kept = 1;        // from F or R to B or I
  int32_t kept_input = 0;  // from Fc to R
  int32_t deferred = 1;    // from I to W
};

// For each rank, the largest number of micro-batch chunks in flight, weighted: what the activation
// memory is proportional to. An evaluation keeps nothing for a backward, so there it is at most 1.
// REQUIRES: verified.
[[nodiscard]] std::vector<int32_t> peak_in_flight(const Schedule& schedule,
                                                  const InFlightWeights& weights = {});

}  // namespace trireme
