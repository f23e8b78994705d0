// GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards, first in, first out, so
// that gradients are summed in the order of micro-batches. Every stage keeps all micro-batches
// alive.
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | F0 F1 F2 F3 .  .  .  .  .  .  B0 -- B1 -- B2 -- B3 --
//   rank 1 | .  F0 F1 F2 F3 .  .  .  B0 -- B1 -- B2 -- B3 --
//   rank 2 | .  .  F0 F1 F2 F3 B0 -- B1 -- B2 -- B3 --
#include "trireme/schedule/builders/orders.h"

namespace trireme {

Result<ComputeOrders> gpipe_orders(const OrderRequest& request) {
  const int32_t count = request.num_micro_batches;
  std::vector<Action> order;
  order.reserve(2 * static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) order.push_back({ActionKind::kForward, i});
  for (int32_t i = 0; i < count; ++i) order.push_back({ActionKind::kBackward, i});
  return ComputeOrders(request.num_stages, order);
}

}  // namespace trireme
