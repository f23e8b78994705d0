// What the result of a training says of its steps: their time and memory, and with --predict what
// was predicted of them.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/cli/run_setup.h"

namespace trireme {

// Adds `step_seconds`, the median of all but the first steps, which warm up; `peak_bytes`, by rank,
// where it is known; and `predicted` with the same. REQUIRES: at least one step.
void add_measured(const RunSetup& setup, std::vector<double> step_seconds,
                  const std::vector<int64_t>& peak_bytes, nlohmann::ordered_json& result);

}  // namespace trireme
