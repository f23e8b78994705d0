#include "trireme/torch/moving_averages.h"

#include <cmath>

#include <ATen/ATen.h>

namespace trireme {

void MovingAverages::begin_step() {
  const at::NoGradGuard no_grad;
  before_.clear();
  for (const Buffer& buffer : buffers_) {
    before_.push_back(buffer.tensor.clone());
    buffer.tensor.zero_();
  }
}

at::Tensor MovingAverages::contribution(int64_t later_micro_batches) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const Buffer& buffer : buffers_) {
    const double factor = std::pow(1 - buffer.momentum, static_cast<double>(later_micro_batches));
    parts.push_back(buffer.tensor.reshape({-1}).to(at::kDouble) * factor);
  }
  return at::cat(parts);
}

void MovingAverages::finish_step(const at::Tensor& sum, int64_t num_micro_batches) {
  const at::NoGradGuard no_grad;
  int64_t offset = 0;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const at::Tensor& tensor = buffers_[i].tensor;
    const at::Tensor part = sum.narrow(0, offset, tensor.numel()).view(tensor.sizes());
    offset += tensor.numel();
    const double factor =
        std::pow(1 - buffers_[i].momentum, static_cast<double>(num_micro_batches));
    tensor.copy_(before_[i].to(at::kDouble) * factor + part);
  }
}

}  // namespace trireme
