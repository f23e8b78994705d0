#include "trireme/torch/step_outcome.h"

#include <cmath>

namespace trireme {

StepOutcome outcome_of(std::span<const double> losses, std::span<const int32_t> num_micro_batches) {
  StepOutcome outcome;
  double weighted = 0;
  for (size_t slot = 0; slot < losses.size(); slot += 2) {
    weighted += losses[slot] * losses[slot + 1];
    outcome.items += losses[slot + 1];
  }
  size_t micro_batch = 0;
  for (size_t r = 0; r < num_micro_batches.size(); ++r) {
    for (int32_t j = 0; j < num_micro_batches[r]; ++j, ++micro_batch) {
      if (!std::isfinite(losses[2 * micro_batch]) && !outcome.non_finite_replica.has_value()) {
        outcome.non_finite_replica = static_cast<int32_t>(r);
      }
    }
  }
  outcome.loss = outcome.items == 0 ? 0.0 : weighted / outcome.items;
  return outcome;
}

}  // namespace trireme
