#include "trireme/schedule/builders/recomputing.h"

#include <algorithm>

namespace trireme {

using enum ActionKind;

std::vector<Action> recomputing_order(int32_t stage, int32_t num_stages, int32_t num_micro_batches,
                                      const EarlyRecomputations& early) {
  const int32_t num_ahead = std::min(num_stages - 1 - stage, num_micro_batches);
  std::vector<Action> order;
  for (int32_t i = 0; i < num_ahead; ++i) order.push_back({kForwardKeepingInput, i});
  for (int32_t i = 0; i < num_micro_batches; ++i) {
    const bool is_drain = num_ahead + i >= num_micro_batches;
    if (!is_drain) order.push_back({kForwardKeepingInput, num_ahead + i});
    append_backward(order, i, i < early.num_first || (is_drain && early.in_drain));
  }
  return order;
}

void append_backward(std::vector<Action>& order, int32_t micro_batch, bool is_early) {
  const Action receive{kReceiveGradient, micro_batch};
  const Action recompute{kRecompute, micro_batch};
  order.push_back(is_early ? recompute : receive);
  order.push_back(is_early ? receive : recompute);
  order.push_back({kBackward, micro_batch});
}

std::vector<Action> keeping_order_of_last_stage(int32_t num_micro_batches) {
  std::vector<Action> order;
  for (int32_t i = 0; i < num_micro_batches; ++i) {
    order.push_back({kForward, i});
    order.push_back({kBackward, i});
  }
  return order;
}

}  // namespace trireme
