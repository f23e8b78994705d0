// 1F1B with a flush (Narayanan et al., SOSP 2019 and SC 2021): stage s runs min(S-1-s, m) forwards
// ahead, then a forward and a backward in turn, then the backwards that are left. It takes as long
// as GPipe, but stage s keeps at most S-s micro-batches alive. With extra warm-ups a stage is
// further ahead of the next one, and keeps as many more, so that messages over a slow hop have more
// time (two_bw.cc).
//
// 3 stages, 4 micro-batches:
//
//   rank 0 | F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --
//   rank 1 | .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 --
//   rank 2 | .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 --
#include <algorithm>

#include "trireme/schedule/builders/orders.h"

namespace trireme {

Result<ComputeOrders> one_f_one_b_orders(const OrderRequest& request) {
  const int32_t count = request.num_micro_batches;
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    const int32_t num_ahead = std::min(request.ahead[static_cast<size_t>(stage)], count);
    std::vector<Action>& order = orders.emplace_back();
    order.reserve(2 * static_cast<size_t>(count));
    for (int32_t i = 0; i < num_ahead; ++i) order.push_back({ActionKind::kForward, i});
    for (int32_t i = 0; i < count; ++i) {
      if (num_ahead + i < count) order.push_back({ActionKind::kForward, num_ahead + i});
      order.push_back({ActionKind::kBackward, i});
    }
  }
  return orders;
}

}  // namespace trireme
