// Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2): a rank has V chunks, S virtual stages
// apart, which cuts the bubble of 1F1B to a V-th, for V times the transfers.
//
// Micro-batches pass the chunks of a rank in groups: a group through chunk 0, then through chunk 1,
// and so on; backwards the other way round. Groups are of S micro-batches; where S does not divide
// m there are floor(m / S) larger ones, alike but for one micro-batch, the larger first. With
// groups of g, rank s runs 2 (S-1-s) + (V-1) g passes ahead, then a forward and a backward in turn.
//
// 2 stages, 2 chunks, 4 micro-batches:
//
//   rank 0 | F0   F1   F0.1 F1.1 F2   .    B0.1 --   F3   B1.1 --   F2.1 B0   --   F3.1 B1   ...
//   rank 1 | .    F0   F1   F0.1 B0.1 --   F1.1 B1.1 --   F2   B0   --   F3   B1   --   F2.1 ...
#include <algorithm>

#include "trireme/schedule/builders/orders.h"

namespace trireme {
namespace {

int32_t group_size(const OrderRequest& request, int32_t group) {
  const int32_t num_groups = std::max(1, request.num_micro_batches / request.num_stages);
  const int32_t rest = request.num_micro_batches % num_groups;
  return request.num_micro_batches / num_groups + (group < rest ? 1 : 0);
}

// The passes of one kind in their order; the last chunk first where they go backwards.
std::vector<Action> passes(const OrderRequest& request, ActionKind kind, bool is_backwards) {
  std::vector<Action> order;
  const int32_t num_groups = std::max(1, request.num_micro_batches / request.num_stages);
  int32_t first = 0;
  for (int32_t group = 0; group < num_groups; ++group) {
    const int32_t end = first + group_size(request, group);
    for (int32_t i = 0; i < request.num_chunks; ++i) {
      const int32_t chunk = is_backwards ? request.num_chunks - 1 - i : i;
      for (int32_t k = first; k < end; ++k) order.push_back({kind, k, chunk});
    }
    first = end;
  }
  return order;
}

}  // namespace

Result<ComputeOrders> interleaved_orders(const OrderRequest& request) {
  const std::vector<Action> forwards = passes(request, ActionKind::kForward, false);
  const std::vector<Action> backwards = passes(request, ActionKind::kBackward, true);
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    const int32_t wanted = request.num_chunks == 1
                               ? request.num_stages - 1 - stage
                               : 2 * (request.num_stages - 1 - stage) +
                                     (request.num_chunks - 1) * group_size(request, 0);
    const size_t num_ahead = std::min(static_cast<size_t>(wanted), forwards.size());
    std::vector<Action>& order =
        orders.emplace_back(forwards.begin(), forwards.begin() + static_cast<ptrdiff_t>(num_ahead));
    for (size_t i = 0; i < backwards.size(); ++i) {
      if (num_ahead + i < forwards.size()) order.push_back(forwards[num_ahead + i]);
      order.push_back(backwards[i]);
    }
  }
  return orders;
}

}  // namespace trireme
