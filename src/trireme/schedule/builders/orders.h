// The compute orders of the builders, one a file; builders.cc lists them.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme {

// Each gives the F and B of one stage. REQUIRES: 0 <= stage < num_stages, num_micro_batches >= 0.
std::vector<Action> gpipe_order(int32_t stage, int32_t num_stages, int32_t num_micro_batches);
std::vector<Action> one_f_one_b_order(int32_t stage, int32_t num_stages, int32_t num_micro_batches);
std::vector<Action> forward_only_order(int32_t stage, int32_t num_stages,
                                       int32_t num_micro_batches);

}  // namespace trireme
