// Forward only: an evaluation. Nothing is kept alive and no gradient exists.
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | F0 F1 F2 F3
//   rank 1 | .  F0 F1 F2 F3
//   rank 2 | .  .  F0 F1 F2 F3
#include "trireme/schedule/builders/orders.h"

namespace trireme {

std::vector<Action> forward_only_order(int32_t /*stage*/, int32_t /*num_stages*/,
                                       int32_t num_micro_batches) {
  std::vector<Action> order;
  order.reserve(static_cast<size_t>(num_micro_batches));
  for (int32_t i = 0; i < num_micro_batches; ++i) order.push_back({ActionKind::kForward, i});
  return order;
}

}  // namespace trireme
