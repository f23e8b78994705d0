#include "trireme/comm/policies/merging.h"

#include <algorithm>

#include "trireme/comm/policies/pieces.h"

namespace trireme {

std::vector<std::vector<int32_t>> merged_groups(const StageProblem& problem, Merging merging) {
  std::vector<std::vector<int32_t>> groups;
  SimTime start = 0;  // of the last group
  int64_t bytes = 0;  // the same
  const SimTime saved = unit_cost(Operation::kAllReduce, 0, problem.route).total();
  for (const int32_t g : by_readiness(problem)) {
    const GradientView& gradient = problem.gradients[static_cast<size_t>(g)];
    const UnitCost cost = unit_cost(Operation::kAllReduce, bytes, problem.route);
    const SimTime end = start + cost.total();
    const SimTime wait = gradient.ready - start;
    const bool joins = !groups.empty() &&
                       (wait < 0 || (merging == Merging::kAlsoWhatIsWorthWaiting && wait < saved));
    if (joins) {
      start = std::max(start, gradient.ready);
      bytes += gradient.bytes;
    } else {
      start = groups.empty() ? gradient.ready : std::max(end, gradient.ready);
      bytes = gradient.bytes;
      groups.emplace_back();
    }
    groups.back().push_back(g);
  }
  return groups;
}

}  // namespace trireme
