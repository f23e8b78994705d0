// `--pin`: each rank of a host computes on cores of its own.
#pragma once

#include <cstdint>

#include "trireme/base/result.h"

namespace trireme {

// Binds the calling thread, and those that it will start, to `num_threads` of the cores that the
// process may use: those of place 0 first, then those of place 1, and so on around.
[[nodiscard]] Status pin_to_cores(int32_t place, int32_t num_threads);

}  // namespace trireme
