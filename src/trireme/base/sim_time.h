// SimTime: a time or a duration in whole nanoseconds, so that sums do not depend on their order.
#pragma once

#include <cmath>
#include <cstdint>

namespace trireme {

using SimTime = int64_t;

// Rounds to the nearest nanosecond. REQUIRES: finite, less than 292 years.
[[nodiscard]] inline SimTime to_sim_time(double seconds) { return std::llround(seconds * 1e9); }
[[nodiscard]] inline double to_seconds(SimTime time) { return static_cast<double>(time) * 1e-9; }

}  // namespace trireme
