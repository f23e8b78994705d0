// EmulatedKernels: kernels of a rehearsal. They compute nothing and have no weights: a pass holds
// the rank for as long as its costs say, without the processor, and messages have the sizes that
// they would have. Gradients are final when the costs say (ChunkCosts::bucket_final).
//
// A hold is a sleep to an absolute deadline (clock_nanosleep), so only its wake-up is late: by 10
// to 100 us on a machine with an idle core, more where ranks compete for cores while they wake up
// or move bytes. lateness() is the sum, to be told beside what was measured.
//
// What is sent is one piece of memory that no one writes; what is received or summed is memory that
// returns to the kernels when its transfer is over. All of it is zero.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/base/sim_time.h"
#include "trireme/cost/step_costs.h"
#include "trireme/exec/kernels.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// Holds the calling thread; returns the time that it was held. Both in nanoseconds.
using Hold = std::function<SimTime(SimTime)>;
[[nodiscard]] SimTime sleep_for(SimTime duration);

class EmulatedKernels : public Kernels {
 public:
  // Both outlive the kernels. REQUIRES: costs of the schedule's stages, chunks, buckets and groups.
  EmulatedKernels(const Schedule& schedule, const StepCosts& costs, int32_t rank,
                  Hold hold = sleep_for);

  Status compute(const Action& action) override;
  void announce_to(OnFinal on_final) override { on_final_ = std::move(on_final); }
  // Of one part. Error: there is no memory of its size.
  Result<Message> message(const Action& action) override;
  Status complete(const Action& /*action*/) override { return Status(); }

  // Of all passes since the last call of it: how long they have held the rank, and how much of it
  // was beyond their costs.
  struct Held {
    SimTime compute = 0;
    SimTime lateness = 0;
  };
  [[nodiscard]] Held take_held();

 private:
  struct Memory {
    std::unique_ptr<std::byte[], void (*)(void*)> bytes;
    size_t size = 0;
  };

  // A bucket that is final within a pass.
  struct Final {
    SimTime after = 0;  // of the pass
    Action pass;
    Action sum;
  };

  void find_final_sums();
  void hold_until(SimTime time, SimTime& held);
  [[nodiscard]] SimTime duration(const Action& action) const;
  [[nodiscard]] int64_t size_of(const Action& action) const;
  [[nodiscard]] int64_t row_exchange_bytes(const Action& action) const;
  static Result<std::shared_ptr<Memory>> new_memory(size_t size);

  const Schedule& schedule_;
  const StepCosts& costs_;
  int32_t rank_;
  const StageCosts& stage_;
  Hold hold_;
  Held held_;
  OnFinal on_final_;
  std::vector<Final> final_sums_;                 // in the order of their times
  std::vector<std::shared_ptr<Memory>> written_;  // what only the pool holds is free
  std::shared_ptr<Memory> sent_;                  // as large as the largest message so far
};

}  // namespace trireme
