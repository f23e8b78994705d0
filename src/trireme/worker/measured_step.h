// What the result of a training says of its steps: their time and memory, and with --predict what
// was predicted of them.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/cli/run_setup.h"
#include "trireme/worker/metrics.h"

namespace trireme {

// Of all steps but the first ones, which warm up. REQUIRES: at least one.
[[nodiscard]] double median_after_warm_up(std::vector<double> of_steps);

// Adds `step_seconds`, the median of `of_steps` after the warm-up; `peak_bytes` and
// `compute_cpu_seconds`, by rank, of the last step where they are known; its `links`; and
// `predicted` with the first two. REQUIRES: at least one step.
void add_measured(const RunSetup& setup, const std::vector<double>& of_steps,
                  const StepMetrics& last, nlohmann::ordered_json& result);

}  // namespace trireme
