// StepOutcome: what all ranks know of a step: its loss, its items, the norm of its gradient.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace trireme {

struct StepOutcome {
  double loss = 0;  // mean over all items of the global batch
  double items = 0;
  // The first replica with a micro-batch whose loss is not finite. Neither then, nor where the
  // norm is not finite or there are no items, does a step change weights or buffers, nor does any
  // step after it.
  std::optional<int32_t> non_finite_replica;
  std::optional<double> gradient_norm;  // of the whole model, when norms were exchanged
};

// Of the (loss, items) of each micro-batch, and the number of micro-batches of each replica.
[[nodiscard]] StepOutcome outcome_of(std::span<const double> losses,
                                     std::span<const int32_t> num_micro_batches);

}  // namespace trireme
