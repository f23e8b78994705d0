// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.1): 1F1B with B split
// into I and W. Weight gradients wait until nothing else can run: stage s is s micro-batches behind
// with them, so that its gradients leave earlier, and no stage keeps more micro-batches alive than
// the first one of 1F1B. The bubble shrinks from (S-1)(F+B) to (S-1)(F+I-W).
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
//   rank 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
#include <algorithm>

#include "trireme/schedule/builders/orders.h"

namespace trireme {

ComputeOrders zero_bubble_orders(const OrderRequest& request, int32_t slope) {
  using enum ActionKind;
  const int32_t count = request.num_micro_batches;
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    const int32_t num_ahead = std::min(slope * (request.num_stages - 1 - stage), count);
    const int32_t num_behind = slope * stage;
    std::vector<Action>& order = orders.emplace_back();
    for (int32_t i = 0; i < num_ahead; ++i) order.push_back({kForward, i});
    for (int32_t i = 0; i < count; ++i) {
      if (num_ahead + i < count) order.push_back({kForward, num_ahead + i});
      order.push_back({kInputGradient, i});
      if (i >= num_behind) order.push_back({kWeightGradient, i - num_behind});
    }
    for (int32_t i = std::max(0, count - num_behind); i < count; ++i) {
      order.push_back({kWeightGradient, i});
    }
  }
  return orders;
}

Result<ComputeOrders> zb_h1_orders(const OrderRequest& request) {
  return zero_bubble_orders(request, 1);
}

}  // namespace trireme
