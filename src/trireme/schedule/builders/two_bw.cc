// 2BW (Narayanan et al., PipeDream-2BW, ICML 2021): 1F1B whose ranks never drain. A stage keeps two
// versions of its weights, and batch t runs on those that the batches before t-1 have made:
//
//   W(t+1) = W(t) - lr g(W(t-1)),    of batch 0 too: W(-1) = W(0)
//
// So the forwards of the next batch need not wait for the update of this one. Stage s is
// d = S-1-s forwards ahead also when a step ends; the gradients of a batch are summed while the
// next one runs, and its update (U-) comes right before the first pass that needs it: the next
// forward of the batch after that. The last stage, which is never ahead, updates when the step
// ends. With updates-at-end they come as published: each step ends with its own sums and update,
// and waits for them.
//
// With extra warm-ups a stage is further ahead of the next one. While messages of latency c travel,
// a pipeline of classic warm-ups loses c a micro-batch at one slow hop, 2 (S-1) c / S where all are
// slow; with one more at each slow hop it loses nothing for c up to (F+B)/2, since a message then
// has the time of a pair of passes, half of it each way. The price is a micro-batch more in flight
// on every stage before the hop.
//
// Their number may change from one step to the next: a step that finds fewer forwards than it is to
// run ahead begins with those that are missing, and one that finds more with backwards alone.
//
// 3 stages, 4 micro-batches: a step with neighbours on both sides
//
//   rank 0 | F2 B0 -- F3 B1 -- F0+ B2 -- F1+ B3 --
//   rank 1 | F1 B0 -- F2 B1 -- F3 B2 -- F0+ B3 --
//   rank 2 | F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 --
#include <algorithm>

#include <fmt/format.h>

#include "trireme/schedule/builders/orders.h"

namespace trireme {
namespace {

using enum ActionKind;

// What is left of the batch before, and before which pair of a forward and a backward each part of
// it comes: as late as possible, so that what travels has time.
class LateActions {
 public:
  LateActions(const OrderRequest& request, int32_t stage) {
    const int32_t update = request.num_micro_batches - ahead_of(request, stage);
    // All ranks need the norm, of which each has a part. Stage s begins a step earlier than stage
    // 0, by s backwards, which are at least s/2 pairs; a pair before the update of stage 0 all have
    // given theirs.
    const int32_t norm =
        std::clamp(request.num_micro_batches - request.ahead[0] - 1 + stage / 2, 0, update);
    // Tied gradients are summed when stage 0 ends its step, s backwards after stage s begins.
    const int32_t reduction = std::min(stage + 1, request.clips_norm ? norm : update);
    for (const int32_t bucket : request.late_buckets[static_cast<size_t>(stage)]) {
      places_.push_back({reduction, {kAllReduce, bucket, 0, -1}});
    }
    if (request.clips_norm) {
      places_.push_back(
          {norm, {kScalars, static_cast<int32_t>(ScalarExchange::kSquaredNorms), 0, -1}});
    }
    places_.push_back({update, {kUpdate, 0, 0, -1}});
  }

  static int32_t ahead_of(const OrderRequest& request, int32_t stage) {
    return std::min(request.ahead[static_cast<size_t>(stage)], request.num_micro_batches);
  }

  // Those that come before this pair.
  void append(int32_t pair, std::vector<Action>& order) const {
    for (const Place& place : places_) {
      if (place.pair == pair) order.push_back(place.action);
    }
  }

 private:
  struct Place {
    int32_t pair = 0;
    Action action;
  };
  std::vector<Place> places_;
};

}  // namespace

Result<ComputeOrders> two_bw_orders(const OrderRequest& request) {
  const int32_t count = request.num_micro_batches;
  const bool is_followed = is_followed_by_a_step(request.place);
  const int32_t most_ahead = std::max(is_followed ? request.ahead[0] : 0, request.found[0]);
  if (count < most_ahead) {
    return Error{
        fmt::format("schedule 2bw of {} stages runs {} forwards ahead, but a step has {} "
                    "micro-batches; give at least {}",
                    request.num_stages, most_ahead, count, most_ahead)};
  }
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    const int32_t num_ahead = LateActions::ahead_of(request, stage);
    const LateActions late(request, stage);
    std::vector<Action>& order = orders.emplace_back();
    const int32_t num_found = request.found[static_cast<size_t>(stage)];
    for (int32_t i = num_found; i < num_ahead; ++i) order.push_back({kForward, i});
    for (int32_t i = 0; i < count; ++i) {
      if (request.has_late_update) late.append(i, order);
      const int32_t forward = num_ahead + i;
      if (forward < count && forward >= num_found) order.push_back({kForward, forward});
      if (forward >= count && is_followed) order.push_back({kForward, forward - count, 0, 1});
      order.push_back({kBackward, i});
    }
    if (request.has_late_update) late.append(count, order);
  }
  return orders;
}

}  // namespace trireme
