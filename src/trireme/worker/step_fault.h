// step_fault(): why a step of a training has not changed the weights.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/cli/run_setup.h"
#include "trireme/torch/step_outcome.h"

namespace trireme {

// One sentence, the same on all ranks; empty where the step has changed them.
[[nodiscard]] std::string step_fault(const RunSetup& setup, int64_t step,
                                     const StepOutcome& outcome);

}  // namespace trireme
