// verify_schedule: the rules every Schedule meets before anything runs it. Production code: it runs
// on every Schedule, whoever made it, and the runtime takes verified Schedules only.
#pragma once

#include <vector>

#include "trireme/base/result.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// The first rule that is broken, in one sentence that names rank, action, and what was expected,
// such as: rank 1 misses the backward of micro-batch 3 (4 of 4 forwards seen).
[[nodiscard]] Status verify_schedule(const Schedule& schedule);

// For each rank, the largest number of micro-batch chunks whose forward has run and whose backward
// has not: what the activation memory is proportional to. REQUIRES: verified.
[[nodiscard]] std::vector<int32_t> peak_in_flight(const Schedule& schedule);

}  // namespace trireme
