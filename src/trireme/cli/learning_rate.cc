#include "trireme/cli/learning_rate.h"

#include <cmath>
#include <numbers>

namespace trireme {

double learning_rate(const LearningRate& schedule, int64_t step) {
  if (step <= schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  const double u = static_cast<double>(step - schedule.warmup_steps) /
                   static_cast<double>(schedule.num_steps - schedule.warmup_steps + 1);
  switch (schedule.kind) {
    case LearningRateKind::kConstant:
      return schedule.peak;
    case LearningRateKind::kLinear:
      return schedule.peak * (1 - u);
    case LearningRateKind::kCosine:
      return schedule.peak * (1 + std::cos(std::numbers::pi * u)) / 2;
  }
  return schedule.peak;
}

}  // namespace trireme
