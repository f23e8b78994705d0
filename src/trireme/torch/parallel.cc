#include "trireme/torch/parallel.h"

#include <ATen/Parallel.h>

#ifndef _OPENMP
#error "compile this file with OpenMP"
#endif

namespace trireme {

void for_each_chunk(int64_t count, int64_t grain,
                    const std::function<void(int64_t, int64_t)>& run) {
  at::parallel_for(0, count, grain, run);
}

}  // namespace trireme
