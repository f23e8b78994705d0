// SimTime: a time or a duration in whole nanoseconds, so that sums do not depend on their order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace trireme {

using SimTime = int64_t;

// Rounds to the nearest nanosecond; of what is longer, 73 years: two of them can be added.
// REQUIRES: a number.
[[nodiscard]] inline SimTime to_sim_time(double seconds) {
  return std::llround(std::clamp(seconds * 1e9, -0x1p61, 0x1p61));
}
[[nodiscard]] inline double to_seconds(SimTime time) { return static_cast<double>(time) * 1e-9; }

}  // namespace trireme
