// Counter-based dropout (draw_stream.h): backward and recomputation need nothing saved.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/torch/draw_stream.h"

namespace trireme {

// x with each element kept with probability 1 - p and scaled by 1 / (1 - p). p is rounded to a
// multiple of 2^-16 and the scale is that of the rounded p, so the mean is exact. Differentiable.
[[nodiscard]] at::Tensor counter_dropout(const at::Tensor& x, double p, const DrawStream& stream);

}  // namespace trireme
