// Early recomputation of Merak (Lai et al., TPDS 2023): 1F1B that recomputes everything, and in the
// drain before the gradient arrives. That hides S-1 recomputations: the step takes
// (m+S-1)(F+R+B) - (S-1) R.
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | Fc0 Fc1 Fc2 .   .   .   .   .   .   R0  B0  --  Fc3 R1  B1  --  R2  B2  --  R3  B3  --
//   rank 1 | .   Fc0 Fc1 .   .   .   R0  B0  --  Fc2 R1  B1  --  Fc3 R2  B2  --  R3  B3  --
//   rank 2 | .   .   Fc0 R0  B0  --  Fc1 R1  B1  --  Fc2 R2  B2  --  Fc3 R3  B3  --
#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/builders/recomputing.h"

namespace trireme {

Result<ComputeOrders> pre_recompute_orders(const OrderRequest& request) {
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    orders.push_back(recomputing_order(stage, request.num_stages, request.num_micro_batches,
                                       {.in_drain = true}));
  }
  return orders;
}

}  // namespace trireme
