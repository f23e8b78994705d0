// The shifted critical path of Merak (Lai et al., TPDS 2023): the last stage keeps everything,
// which makes the stage before it the slowest. That one runs a forward more than 1F1B before its
// first backward, and hides two recomputations in the wait; the stage before that hides one. The
// step takes (m+S-1)(F+B) + (m-3) R.
//
// It is for max(S, 4) micro-batches and more; fewer take the same order and leave the others out.
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | Fc0 Fc1 Fc2 R0  .   .   .   B0  --  Fc3 R1  B1  --  R2  B2  --  R3  B3  --
//   rank 1 | .   Fc0 Fc1 Fc2 R0  B0  --  R1  B1  --  Fc3 R2  B2  --  R3  B3  --
//   rank 2 | .   .   F0  B0  --  F1  B1  --  F2  B2  --  F3  B3  --
#include <algorithm>

#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/builders/recomputing.h"

namespace trireme {
namespace {

// The stage before the last.
std::vector<Action> critical_order(int32_t num_micro_batches) {
  using enum ActionKind;
  std::vector<Action> order;
  for (int32_t i = 0; i < 3; ++i) order.push_back({kForwardKeepingInput, i});
  for (int32_t i = 0; i < num_micro_batches; ++i) {
    append_backward(order, i, i < 2);
    if (i >= 1 && i + 2 < num_micro_batches) order.push_back({kForwardKeepingInput, i + 2});
  }
  return order;
}

}  // namespace

Result<ComputeOrders> shifted_critical_path_orders(const OrderRequest& request) {
  const int32_t num_stages = request.num_stages;
  const int32_t count = std::max({request.num_micro_batches, num_stages, 4});
  ComputeOrders orders;
  for (int32_t stage = 0; stage + 2 < num_stages; ++stage) {
    orders.push_back(
        recomputing_order(stage, num_stages, count,
                          {.num_first = stage + 3 == num_stages ? 1 : 0, .in_drain = true}));
  }
  if (num_stages >= 2) orders.push_back(critical_order(count));
  orders.push_back(keeping_order_of_last_stage(count));
  return first_micro_batches(std::move(orders), request.num_micro_batches);
}

}  // namespace trireme
