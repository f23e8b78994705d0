// Early sums, for what has no gradients: the pass of a rank's list in which a bucket becomes final.
#pragma once

#include <optional>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme {

// The last pass of the batch, in the rank's list, that ends a backward of one of these chunks: a
// bucket that these alone add to is final within it. Nothing where there is none. REQUIRES: an
// entry a chunk.
[[nodiscard]] std::optional<Action> last_backward(const Schedule& schedule, int32_t rank,
                                                  int32_t batch, const std::vector<bool>& chunks);

// From `begin` on in the list: calls issue(action), which may refuse, for the AR that is_final()
// holds of, in order, up to the first one that it does not, or that a TR comes before. Returns
// where the next call goes on.
template <typename IsFinal, typename Issue>
size_t for_each_final_sum(const std::vector<Action>& actions, size_t begin, IsFinal is_final,
                          Issue issue) {
  for (; begin < actions.size(); ++begin) {
    const Action& action = actions[begin];
    if (action.kind == ActionKind::kTiedReduce) break;
    if (action.kind != ActionKind::kAllReduce) continue;
    if (!is_final(action) || !issue(action)) break;
  }
  return begin;
}

}  // namespace trireme
