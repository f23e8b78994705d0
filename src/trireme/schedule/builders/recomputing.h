// The orders of Merak's schedules (Lai et al., Merak, TPDS 2023, and its public code): 1F1B whose
// forwards keep their input only. A recomputation either waits for the gradient, as checkpointing
// does by itself, or runs early, while the rank would be waiting for it.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme {

struct EarlyRecomputations {
  int32_t num_first = 0;  // of the first micro-batches
  bool in_drain = false;  // of those whose backward comes after the last forward
};

// 1F1B of one stage that recomputes everything.
[[nodiscard]] std::vector<Action> recomputing_order(int32_t stage, int32_t num_stages,
                                                    int32_t num_micro_batches,
                                                    const EarlyRecomputations& early);

// The recomputation and the backward of a micro-batch. A late one waits for the gradient first; on
// the last stage, which receives none, that is the same.
void append_backward(std::vector<Action>& order, int32_t micro_batch, bool is_early);

// F and B of the last stage in turn, without recomputation.
[[nodiscard]] std::vector<Action> keeping_order_of_last_stage(int32_t num_micro_batches);

}  // namespace trireme
