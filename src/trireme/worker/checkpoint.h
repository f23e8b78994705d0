// save_weights(): the whole model as one safetensors file, by the module's own names.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/transport.h"
#include "trireme/torch/stage_kernels.h"

namespace trireme {

// Every rank calls it between two steps, and returns once the file is there. Rank 0 writes: it
// receives each parameter and persistent buffer from the first stage of replica 0 that holds it,
// one after the other, so it never holds more than one besides its own. What no stage uses comes
// from where the run got its weights.
[[nodiscard]] Status save_weights(const std::string& path, const RunSetup& setup, int32_t rank,
                                  const StageKernels& kernels, Transport& transport);

}  // namespace trireme
