// Greedy: list scheduling of F, I and W from their costs and the delay between ranks, as
// CrossPipe's greedy algorithm (Chen et al., ATC 2025). The weight gradients of each chunk are a
// block of their own and fill the waits. Where no limit is given, a rank has as much in flight as
// the first of 1F1B: a micro-batch a stage. With one chunk it is never slower than ZB-H1, nor,
// where the limit has room for it, ZB-H2.
//
// 3 stages, 4 micro-batches, no delay:
//
//   rank 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
//   rank 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//   rank 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
#include "trireme/schedule/builders/list_scheduling.h"
#include "trireme/schedule/builders/orders.h"

namespace trireme {

Result<ComputeOrders> greedy_orders(const OrderRequest& request) {
  TRIREME_TRY(const int32_t limit,
              in_flight_limit(request, request.num_stages * request.num_chunks));
  std::vector<ComputeOrders> candidates;
  if (request.num_chunks == 1) {
    TRIREME_TRY(ComputeOrders h1, zb_h1_orders(request));
    TRIREME_TRY(ComputeOrders h2, zb_h2_orders(request));
    candidates = {std::move(h1), std::move(h2)};
  }
  return best_orders(request, limit, candidates);
}

}  // namespace trireme
