// Text: the order that the user wrote, for as many micro-batches or fewer.
#include <fmt/format.h>

#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {

Result<ComputeOrders> text_orders(const OrderRequest& request) {
  if (request.order == nullptr) return Error{"schedule text needs an order that was written down"};
  const Schedule& order = *request.order;
  if (order.num_micro_batches.size() != 1) {
    return Error{fmt::format("the order is of {} replicas: give that of one, which all follow",
                             order.num_micro_batches.size())};
  }
  const int32_t count = order.num_micro_batches[0];
  if (order.num_stages != request.num_stages || count < request.num_micro_batches) {
    return Error{fmt::format("the order is of {} stages and {} micro-batches, not of {} and {}",
                             order.num_stages, count, request.num_stages,
                             request.num_micro_batches)};
  }
  if (order.ranks.size() != static_cast<size_t>(order.num_stages)) {
    return Error{fmt::format("the order lists {} ranks: {} stages make as many", order.ranks.size(),
                             order.num_stages)};
  }
  TRIREME_TRY(check_index_range(ScheduleIndex(order)));
  for (size_t rank = 0; rank < order.ranks.size(); ++rank) {
    for (const Action& action : order.ranks[rank]) {
      const bool is_pass = is_compute(action.kind) && action.kind != ActionKind::kUpdate;
      if (is_pass || action.kind == ActionKind::kReceiveGradient) continue;
      return Error{fmt::format("rank {} of the order lists {}, which is added by itself", rank,
                               to_text(action))};
    }
  }
  return first_micro_batches(order.ranks, request.num_micro_batches);
}

}  // namespace trireme
