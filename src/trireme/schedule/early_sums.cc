#include "trireme/schedule/early_sums.h"

#include <algorithm>

namespace trireme {

std::optional<Action> last_backward(const Schedule& schedule, int32_t rank, int32_t batch,
                                    const std::vector<bool>& chunks) {
  const std::vector<Action>& actions = schedule.ranks[static_cast<size_t>(rank)];
  const auto found = std::find_if(actions.rbegin(), actions.rend(), [&](const Action& action) {
    return ends_backward(action.kind) && action.batch == batch &&
           chunks[static_cast<size_t>(action.chunk)];
  });
  return found == actions.rend() ? std::nullopt : std::optional(*found);
}

}  // namespace trireme
