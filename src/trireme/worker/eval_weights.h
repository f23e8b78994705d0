// copy_trained_weights(): gives the model that evaluates the weights of the model that trains.
#pragma once

#include <cstdint>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/transport.h"
#include "trireme/torch/stage_kernels.h"

namespace trireme {

// Every rank calls it between two steps. Where the two models are cut at the same places nothing
// travels; else a stage of the one receives what another stage of the other trains, within its
// replica. What no stage reads in training stays as the run got it.
// REQUIRES: setup.eval_model.
[[nodiscard]] Status copy_trained_weights(const RunSetup& setup, int32_t rank,
                                          const StageKernels& trained, StageKernels& evaluated,
                                          Transport& transport);

}  // namespace trireme
