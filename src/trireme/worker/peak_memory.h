// The most memory that the tensors of each rank held (torch/counting_allocator.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/transport.h"

namespace trireme {

// By rank, since the last reset_tensor_memory_peak(), on rank 0; empty on the others. Of all ranks,
// between two steps. REQUIRES: each is a process of its own.
[[nodiscard]] Result<std::vector<int64_t>> gather_peak_bytes(int32_t rank, int32_t num_ranks,
                                                             Transport& transport);

}  // namespace trireme
