// The learning rate of a step.
#pragma once

#include <cstdint>

#include "trireme/cli/request.h"

namespace trireme {

struct LearningRate {
  LearningRateKind kind = LearningRateKind::kConstant;
  double peak = 0;
  int64_t warmup_steps = 0;
  int64_t num_steps = 1;
};

// Step t counts from 1. t <= W: peak t / W. Then, with u = (t - W) / (T - W + 1), so that the last
// step still learns: constant peak, linear peak (1 - u), cosine peak (1 + cos(pi u)) / 2
// (Loshchilov and Hutter, ICLR 2017, equation 5 without restarts).
[[nodiscard]] double learning_rate(const LearningRate& schedule, int64_t step);

}  // namespace trireme
