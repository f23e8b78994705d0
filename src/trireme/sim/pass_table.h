// PassTable: what each pass of a schedule takes and leaves on its rank, by stage, chunk and kind,
// looked up once for a simulation.
//
// Memory goes with the tensors: a message to come is held from the posting of its receive, what a
// pass sends until its sender has waited for it (exec/executor.h), what a forward keeps until the
// backward has ended (of a split one, its deferred part until the weight gradient). A message that
// was received is part of what the pass keeps.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cost/step_costs.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// Whether the costs are of as many stages, chunks, buckets and tied groups as the schedule has. One
// sentence.
[[nodiscard]] Status verify_step_costs(const StepCosts& costs, const Schedule& schedule);

struct PassCost {
  SimTime duration = 0;
  int64_t held_bytes = 0;  // at most, beyond what is there before, while it runs
  int64_t left_bytes = 0;  // more than before, once it has ended; may be negative
};

class PassTable {
 public:
  // REQUIRES: costs that verify.
  PassTable(const Schedule& schedule, const StepCosts& costs);

  // REQUIRES: a compute action.
  [[nodiscard]] const PassCost& of(int32_t stage, const Action& action) const {
    return passes_[index(stage, action.chunk)][static_cast<size_t>(action.kind)];
  }
  // Of a message that the chunk gets: RA or RG.
  [[nodiscard]] int64_t received_bytes(int32_t stage, const Action& action) const {
    return received_[index(stage, action.chunk)][action.kind == ActionKind::kReceiveGradient];
  }

 private:
  [[nodiscard]] size_t index(int32_t stage, int32_t chunk) const {
    return static_cast<size_t>(stage) * num_chunks_ + static_cast<size_t>(chunk);
  }
  void add(const Schedule& schedule, const StepCosts& costs, int32_t stage, int32_t chunk);

  size_t num_chunks_;
  std::vector<std::array<PassCost, static_cast<size_t>(ActionKind::kUpdate) + 1>> passes_;
  std::vector<std::array<int64_t, 2>> received_;  // activations, gradients
};

// The exponential of a normal number with this standard deviation, of 64 random bits.
[[nodiscard]] double log_normal(double deviation, uint64_t bits);

}  // namespace trireme
