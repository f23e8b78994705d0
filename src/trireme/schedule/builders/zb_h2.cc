// ZB-H2 (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2): ZB-H1 with twice as
// many forwards ahead and weight gradients behind. With F = I = W no rank waits between its first
// and its last pass, from m = 2 S - 1 on; each keeps 2 S - 1 micro-batches alive.
//
// 3 stages, 5 micro-batches:
//
//   rank 0 | F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4
//   rank 1 | .  F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
#include "trireme/schedule/builders/orders.h"

namespace trireme {

Result<ComputeOrders> zb_h2_orders(const OrderRequest& request) {
  return zero_bubble_orders(request, 2);
}

}  // namespace trireme
