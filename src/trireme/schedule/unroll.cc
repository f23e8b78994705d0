#include "trireme/schedule/unroll.h"

#include <algorithm>

namespace trireme {

Schedule unroll(std::span<const Schedule> steps) {
  Schedule run = steps.front();
  run.num_steps = static_cast<int32_t>(steps.size());
  run.num_ahead = steps.back().num_ahead;
  for (size_t step = 1; step < steps.size(); ++step) {
    run.look_ahead = std::max(run.look_ahead, steps[step].look_ahead);
    for (size_t replica = 0; replica < run.num_micro_batches.size(); ++replica) {
      int32_t& most = run.num_micro_batches[replica];
      most = std::max(most, steps[step].num_micro_batches[replica]);
    }
    for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
      for (Action action : steps[step].ranks[rank]) {
        action.batch += static_cast<int32_t>(step);
        run.ranks[rank].push_back(action);
      }
    }
  }
  return run;
}

}  // namespace trireme
