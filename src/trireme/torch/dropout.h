// Counter-based dropout: whether an element is dropped follows from (seed, step, node, sample,
// element within the sample) alone, so the result depends neither on the parallel layout nor on the
// micro-batch size, and backward and recomputation need nothing saved.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme {

// Where a tensor lies in the batch: dim `batch_dim` counts samples (`rows_per_sample` rows each,
// sample-major), the first being global sample `first_sample` of the step. No batch dim (-1): every
// micro-batch draws the same numbers.
struct DropoutKey {
  uint64_t key = 0;  // of (seed, step, node)
  int64_t first_sample = 0;
  int64_t batch_dim = -1;
  int64_t rows_per_sample = 1;
};

// x with each element kept with probability 1 - p and scaled by 1 / (1 - p). p is rounded to a
// multiple of 2^-16 and the scale is that of the rounded p, so the mean is exact. Differentiable.
[[nodiscard]] at::Tensor counter_dropout(const at::Tensor& x, double p, const DropoutKey& key);

}  // namespace trireme
