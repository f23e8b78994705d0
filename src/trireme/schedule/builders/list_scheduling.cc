#include "trireme/schedule/builders/list_scheduling.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

using enum ActionKind;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Variant {
  // Of a virtual stage: the micro-batches that may be in flight.
  std::vector<int32_t> caps;
  // Of an F and an I that could start at once, an F comes after an I: as 1F1B does.
  bool alternates = false;
  // A W that makes room for an F comes before an I.
  bool makes_room = false;
  // In halves of a W: an F or an I that is known to come sooner is waited for, rather than be late
  // by the rest of a W. (To run a W in parts gains as little: 0.26 % of the makespan in the mean of
  // 72 costs, delays and limits of 8 stages and 16 micro-batches, where this gains 0.25 %.)
  int32_t patience = 0;
};

// One run of the rule. Counts of a virtual stage say which micro-batch is next: all passes of one
// kind run in the order of micro-batches, so that gradients are summed in it.
class ListScheduler {
 public:
  ListScheduler(const OrderRequest& request, const Variant& variant)
      : request_(request),
        variant_(variant),
        num_virtual_(request.num_stages * request.num_chunks) {
    const auto num_passes =
        static_cast<size_t>(num_virtual_) * static_cast<size_t>(request.num_micro_batches);
    forward_ends_.resize(num_passes, kNever);
    gradient_ends_.resize(num_passes, kNever);
    counts_.resize(static_cast<size_t>(num_virtual_));
    ranks_.resize(static_cast<size_t>(request.num_stages));
    orders_.resize(static_cast<size_t>(request.num_stages));
  }

  // The makespan; the orders are then in orders().
  int64_t run() {
    for (int32_t stage = 0; stage < request_.num_stages; ++stage) find_next(stage);
    int64_t end = 0;
    for (size_t left = 3 * forward_ends_.size(); left > 0; --left) {
      const auto rank = std::ranges::min_element(ranks_, {}, [](const Rank& r) { return r.start; });
      TRIREME_CHECK(rank->start != kNever, "list scheduling stands still");
      const auto stage = static_cast<int32_t>(rank - ranks_.begin());
      end = std::max(end, start(stage));
      // What ended can let this rank and those of the neighbouring virtual stages go on.
      const int32_t v = virtual_stage(stage, orders_[static_cast<size_t>(stage)].back().chunk);
      find_next(stage);
      if (v > 0) find_next(stage_of(v - 1));
      if (v + 1 < num_virtual_) find_next(stage_of(v + 1));
    }
    return end;
  }

  ComputeOrders orders() && { return std::move(orders_); }

 private:
  struct Counts {
    int32_t forwards = 0;
    int32_t input_gradients = 0;
    int32_t weight_gradients = 0;
  };
  struct Rank {
    int64_t free_at = 0;
    int64_t start = kNever;  // of `next`
    int32_t preference = 0;  // of `next`; less is better
    Action next;
    bool ran_input_gradient = false;  // and no F since
  };

  [[nodiscard]] int32_t virtual_stage(int32_t stage, int32_t chunk) const {
    return chunk * request_.num_stages +
           place_within_chunk(request_.placement, request_.num_stages, chunk, stage);
  }
  [[nodiscard]] int32_t stage_of(int32_t v) const {
    return place_within_chunk(request_.placement, request_.num_stages, v / request_.num_stages,
                              v % request_.num_stages);
  }
  [[nodiscard]] size_t slot(int32_t v, int32_t micro_batch) const {
    return static_cast<size_t>(v) * static_cast<size_t>(request_.num_micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  [[nodiscard]] int64_t arrival(int64_t end, int32_t from, int32_t to) const {
    if (end == kNever) return kNever;
    return end + (stage_of(from) == stage_of(to) ? 0 : request_.costs.delay);
  }

  void consider(Rank& rank, const Action& action, int64_t ready, int32_t preference) {
    if (ready == kNever) return;
    const int64_t start = std::max(rank.free_at, ready);
    if (start > rank.start || (start == rank.start && preference >= rank.preference)) return;
    rank.start = start;
    rank.preference = preference;
    rank.next = action;
  }

  // Sets what the rank starts next, as far as what has been started tells. Later chunks first: they
  // are nearer to their end.
  void find_next(int32_t stage) {
    Rank& rank = ranks_[static_cast<size_t>(stage)];
    rank.start = kNever;
    const int32_t count = request_.num_micro_batches;
    for (int32_t chunk = request_.num_chunks - 1; chunk >= 0; --chunk) {
      const int32_t v = virtual_stage(stage, chunk);
      const Counts& counts = counts_[static_cast<size_t>(v)];
      if (counts.input_gradients < counts.forwards) {
        const int32_t k = counts.input_gradients;
        const int64_t ready = v + 1 == num_virtual_
                                  ? forward_ends_[slot(v, k)]
                                  : arrival(gradient_ends_[slot(v + 1, k)], v + 1, v);
        consider(rank, {kInputGradient, k, chunk}, ready, 2);
      }
      if (counts.forwards < count && !is_full(v)) {
        const int32_t k = counts.forwards;
        const int64_t ready = v == 0 ? 0 : arrival(forward_ends_[slot(v - 1, k)], v - 1, v);
        const bool is_its_turn = variant_.alternates && rank.ran_input_gradient;
        consider(rank, {kForward, k, chunk}, ready, is_its_turn ? 1 : 3);
      }
    }
    const int64_t wait = rank.start == kNever ? kNever : rank.start - rank.free_at;
    const int64_t patience = (variant_.patience * request_.costs.weight_gradient + 1) / 2;
    if (wait > 0 && wait < patience) return;
    for (int32_t chunk = request_.num_chunks - 1; chunk >= 0; --chunk) {
      const int32_t v = virtual_stage(stage, chunk);
      const Counts& counts = counts_[static_cast<size_t>(v)];
      if (counts.weight_gradients == counts.input_gradients) continue;
      const bool makes_room = variant_.makes_room && is_full(v) && counts.forwards < count;
      consider(rank, {kWeightGradient, counts.weight_gradients, chunk}, rank.free_at,
               makes_room ? 0 : 4);
    }
  }

  // Whether as many micro-batches are in flight as may be.
  [[nodiscard]] bool is_full(int32_t v) const {
    const Counts& counts = counts_[static_cast<size_t>(v)];
    return counts.forwards - counts.weight_gradients >= variant_.caps[static_cast<size_t>(v)];
  }

  // Its end.
  int64_t start(int32_t stage) {
    Rank& rank = ranks_[static_cast<size_t>(stage)];
    const Action action = rank.next;
    const int32_t v = virtual_stage(stage, action.chunk);
    Counts& counts = counts_[static_cast<size_t>(v)];
    rank.free_at = rank.start + cost_of(action.kind, request_.costs);
    if (action.kind == kForward) {
      ++counts.forwards;
      forward_ends_[slot(v, action.index)] = rank.free_at;
      rank.ran_input_gradient = false;
    } else if (action.kind == kInputGradient) {
      ++counts.input_gradients;
      gradient_ends_[slot(v, action.index)] = rank.free_at;
      rank.ran_input_gradient = true;
    } else {
      ++counts.weight_gradients;
    }
    orders_[static_cast<size_t>(stage)].push_back(action);
    return rank.free_at;
  }

  const OrderRequest& request_;
  const Variant& variant_;
  int32_t num_virtual_;
  // By slot(): when a pass ends.
  std::vector<int64_t> forward_ends_;
  std::vector<int64_t> gradient_ends_;
  std::vector<Counts> counts_;  // by virtual stage
  std::vector<Rank> ranks_;
  ComputeOrders orders_;
};

// How a rank's limit can be shared out between its virtual stages: evenly, by how long a
// micro-batch stays in each, or less than the limit, `slope` more a virtual stage before the last.
std::vector<std::vector<int32_t>> shares(const OrderRequest& request, int32_t max_in_flight) {
  const int32_t num_virtual = request.num_stages * request.num_chunks;
  const auto all = static_cast<size_t>(num_virtual);
  std::vector<std::vector<int32_t>> result = {
      std::vector<int32_t>(all, max_in_flight / request.num_chunks)};
  const auto chunk_of_rank = [&](int32_t v, int32_t chunk) {
    const int32_t stage = place_within_chunk(request.placement, request.num_stages,
                                             v / request.num_stages, v % request.num_stages);
    return chunk * request.num_stages +
           place_within_chunk(request.placement, request.num_stages, chunk, stage);
  };
  std::vector<int32_t>& by_stay = result.emplace_back(all);
  for (int32_t v = 0; v < num_virtual; ++v) {
    int64_t stays = 0;
    for (int32_t chunk = 0; chunk < request.num_chunks; ++chunk) {
      stays += 2 * (num_virtual - 1 - chunk_of_rank(v, chunk)) + 1;
    }
    const int64_t stay = 2 * (num_virtual - 1 - v) + 1;
    // One each, and the rest by the stay: the sum is at most the limit.
    by_stay[static_cast<size_t>(v)] =
        static_cast<int32_t>(1 + int64_t{max_in_flight - request.num_chunks} * stay / stays);
  }
  if (request.num_chunks > 1) return result;
  for (const int32_t slope : {1, 2}) {
    for (const int32_t least : {1, 2}) {
      std::vector<int32_t>& sloping = result.emplace_back(all);
      for (int32_t v = 0; v < num_virtual; ++v) {
        sloping[static_cast<size_t>(v)] = static_cast<int32_t>(
            std::min<int64_t>(int64_t{slope} * (num_virtual - 1 - v) + least, max_in_flight));
      }
    }
  }
  return result;
}

std::vector<Variant> variants(const OrderRequest& request, int32_t max_in_flight) {
  std::vector<Variant> result;
  for (const std::vector<int32_t>& caps : shares(request, max_in_flight)) {
    for (const bool alternates : {false, true}) {
      for (const bool makes_room : {false, true}) {
        for (const int32_t patience : {0, 1, 2}) {
          result.push_back({caps, alternates, makes_room, patience});
        }
      }
    }
  }
  return result;
}

}  // namespace

Result<int32_t> in_flight_limit(const OrderRequest& request, int32_t own_limit) {
  const int32_t limit = request.max_in_flight == 0 ? own_limit : request.max_in_flight;
  if (limit >= request.num_chunks) return limit;
  return Error{fmt::format("{} in flight a rank: a micro-batch alone has {} chunks in flight",
                           limit, request.num_chunks)};
}

ComputeOrders best_orders(const OrderRequest& request, int32_t max_in_flight,
                          const std::vector<ComputeOrders>& candidates) {
  ComputeOrders best;
  int64_t least = kNever;
  for (const ComputeOrders& candidate : candidates) {
    const Schedule schedule = with_transfers(request, candidate);
    if (std::ranges::max(peak_in_flight(schedule)) > max_in_flight) continue;
    const int64_t end = makespan(timetable(schedule, request.costs));
    if (end >= least) continue;
    least = end;
    best = candidate;
  }
  for (const Variant& variant : variants(request, max_in_flight)) {
    ListScheduler scheduler(request, variant);
    const int64_t end = scheduler.run();
    if (end >= least) continue;
    least = end;
    best = std::move(scheduler).orders();
  }
  return best;
}

}  // namespace trireme
