// Whether all ranks were started with the same request: the sizes of all that travels follow from
// it.
#pragma once

#include <cstdint>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/control_client.h"

namespace trireme {

// A digest of model, plan, data sizes and options; not of the data themselves, nor of output files.
[[nodiscard]] uint64_t request_digest(const RunSetup& setup);

// Every rank calls it once. Error at a rank whose digest is not that of rank 0.
[[nodiscard]] Status agree_with_rank_zero(const RunSetup& setup, int32_t rank,
                                          ControlClient& client);

}  // namespace trireme
