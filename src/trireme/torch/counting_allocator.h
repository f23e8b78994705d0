// Counts the memory that tensors hold. Torch-free to include.
//
// It counts what the C library gives for each request, of every thread: weights, gradients,
// optimizer state, activations, received messages. Inputs that were read ahead and the scratch
// memory of kernels are not tensors of torch's allocator, and not counted.
#pragma once

#include <cstdint>

namespace trireme {

struct TensorMemory {
  int64_t bytes = 0;       // held now
  int64_t peak_bytes = 0;  // the most since the last reset_peak(), or since the start
};

// From now on. Call once, before there are tensors.
void count_tensor_memory();
[[nodiscard]] TensorMemory tensor_memory_now();
// The peak becomes what is held now.
void reset_tensor_memory_peak();

}  // namespace trireme
