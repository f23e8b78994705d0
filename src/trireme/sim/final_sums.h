// When the gradient buckets of a rank are final, as the costs say (ChunkCosts::bucket_final).
#pragma once

#include <vector>

#include "trireme/cost/step_costs.h"
#include "trireme/schedule/schedule.h"
#include "trireme/sim/pass_table.h"

namespace trireme {

struct FinalSum {
  Action pass;       // within which it is
  Action sum;        // the AR
  double share = 0;  // of the pass
};

// Of all batches of the schedule; none where its sums are not early.
[[nodiscard]] std::vector<FinalSum> final_sums(const Schedule& schedule, const StepCosts& costs,
                                               const PassTable& passes, int32_t rank);

}  // namespace trireme
