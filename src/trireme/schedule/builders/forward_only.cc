// Forward only: an evaluation. Nothing is kept alive and no gradient exists. With chunks, virtual
// stage v has its turn with micro-batch k in slot k + v: each after the one before it.
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | F0 F1 F2 F3
//   rank 1 | .  F0 F1 F2 F3
//   rank 2 | .  .  F0 F1 F2 F3
#include <algorithm>

#include "trireme/schedule/builders/orders.h"

namespace trireme {

Result<ComputeOrders> forward_only_orders(const OrderRequest& request) {
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    std::vector<Action>& order = orders.emplace_back();
    for (int32_t chunk = 0; chunk < request.num_chunks; ++chunk) {
      for (int32_t i = 0; i < request.num_micro_batches; ++i) {
        order.push_back({ActionKind::kForward, i, chunk});
      }
    }
    const auto slot = [&](const Action& action) {
      return action.index + action.chunk * request.num_stages +
             place_within_chunk(request.placement, request.num_stages, action.chunk, stage);
    };
    std::ranges::stable_sort(order, {}, slot);
  }
  return orders;
}

}  // namespace trireme
