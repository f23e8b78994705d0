// Early recomputation of Merak (Lai et al., TPDS 2023) whose last stage, which holds one
// micro-batch at a time, keeps everything instead: pre-recompute, but for the last stage, and the
// stage before it recomputes its first micro-batch early. The step takes (m+S-1)(F+R+B) - (S+1) R.
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | Fc0 Fc1 Fc2 .   .   .   .   R0  B0  --  Fc3 R1  B1  --  R2  B2  --  R3  B3  --
//   rank 1 | .   Fc0 Fc1 R0  .   B0  --  Fc2 R1  B1  --  Fc3 R2  B2  --  R3  B3  --
//   rank 2 | .   .   F0  B0  --  F1  B1  --  F2  B2  --  .   F3  B3  --
#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/builders/recomputing.h"

namespace trireme {

Result<ComputeOrders> last_no_recompute_orders(const OrderRequest& request) {
  ComputeOrders orders;
  for (int32_t stage = 0; stage + 1 < request.num_stages; ++stage) {
    const bool is_before_last = stage + 2 == request.num_stages;
    orders.push_back(recomputing_order(stage, request.num_stages, request.num_micro_batches,
                                       {.num_first = is_before_last ? 1 : 0, .in_drain = true}));
  }
  orders.push_back(keeping_order_of_last_stage(request.num_micro_batches));
  return orders;
}

}  // namespace trireme
