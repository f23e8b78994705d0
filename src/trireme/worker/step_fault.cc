#include "trireme/worker/step_fault.h"

#include <cmath>

#include <fmt/format.h>

namespace trireme {

std::string step_fault(const RunSetup& setup, int64_t step, const StepOutcome& outcome) {
  if (outcome.non_finite_replica.has_value()) {
    const int32_t last = place_within_chunk(setup.plan.placement, setup.plan.pp,
                                            setup.plan.chunks - 1, setup.plan.pp - 1);
    const int32_t rank = *outcome.non_finite_replica * setup.plan.pp + last;
    return fmt::format("the loss of step {} is not finite, first on {}", step,
                       setup.describe_rank(rank));
  }
  if (outcome.gradient_norm.has_value() && !std::isfinite(*outcome.gradient_norm)) {
    return fmt::format("the gradient norm of step {} is not finite", step);
  }
  if (outcome.items == 0) {
    return fmt::format("the batch of step {} has no items: every target is ignored", step);
  }
  return "";
}

}  // namespace trireme
