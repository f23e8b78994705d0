// MovingAverages: BatchNorm's running statistics under data parallelism.
//
// With r0 before the step, momentum a, and s_k the statistic of global micro-batch k, the
// sequential loop over G micro-batches ends with
//
//   (1-a)^G r0 + sum_k a (1-a)^(G-1-k) s_k
//
// A replica whose statistics start the step at 0 ends with its own part of the sum, up to the
// factor (1-a)^(micro-batches of later replicas); the sum over replicas is therefore exact.
// Training never reads running statistics, so starting at 0 changes nothing else. A count
// (num_batches_tracked) is the case a = 0.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/plan/gradients.h"

namespace trireme {

class MovingAverages {
 public:
  struct Buffer {
    at::Tensor tensor;  // the buffer itself, changed in place
    double momentum = 0;
  };
  explicit MovingAverages(std::vector<Buffer> buffers) : buffers_(std::move(buffers)) {}
  MovingAverages() = default;

  [[nodiscard]] bool is_empty() const { return buffers_.empty(); }
  // Before the first micro-batch of a step.
  void begin_step();
  // This replica's part of the sum, as one flat float64 tensor to be summed over the replicas.
  [[nodiscard]] at::Tensor contribution(int64_t later_micro_batches) const;
  // After the last: `sum` over the replicas, over `num_micro_batches` of the whole step.
  void finish_step(const at::Tensor& sum, int64_t num_micro_batches);

 private:
  std::vector<Buffer> buffers_;
  std::vector<at::Tensor> before_;
};

}  // namespace trireme
