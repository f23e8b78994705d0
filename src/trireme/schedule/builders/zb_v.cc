// ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory, 2024): two chunks a rank, placed
// as a V, so that the first rank has the first and the last virtual stage, and backwards begin
// where forwards end. B is split into I and W, and W fills what would be idle.
//
// The order is found by list scheduling from the costs of F, I and W: a rank that is free runs an I
// whose gradient has come, else an F, of the later chunk first, else a W; of several the oldest. It
// begins no micro-batch while S of them, in halves as many as 1F1B's S, are not over.
#include <algorithm>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/schedule/builders/orders.h"

namespace trireme {
namespace {

using enum ActionKind;

class ListScheduler {
 public:
  explicit ListScheduler(const OrderRequest& request)
      : request_(request),
        num_virtual_(request.num_stages * request.num_chunks),
        forward_end_(size(), kNever),
        gradient_end_(size(), kNever),
        weight_end_(size(), kNever),
        free_at_(request.num_stages, 0),
        orders_(request.num_stages) {}

  ComputeOrders run() {
    int64_t now = 0;
    for (size_t left = 3 * size(); left > 0;) {
      int64_t next = std::numeric_limits<int64_t>::max();
      for (int32_t stage = 0; stage < request_.num_stages; ++stage) {
        while (left > 0 && free_at_[stage] <= now && run_one(stage, now)) --left;
      }
      // What has an end later than now is what anything waits for.
      for (const auto* ends : {&forward_end_, &gradient_end_, &weight_end_}) {
        for (const int64_t end : *ends) {
          if (end != kNever && end + request_.costs.delay > now) {
            next = std::min(next, end > now ? end : end + request_.costs.delay);
          }
        }
      }
      TRIREME_CHECK(left == 0 || next != std::numeric_limits<int64_t>::max(),
                    "list scheduling stands still");
      now = next;
    }
    return std::move(orders_);
  }

 private:
  static constexpr int64_t kNever = -1;

  [[nodiscard]] size_t size() const {
    return static_cast<size_t>(num_virtual_) * request_.num_micro_batches;
  }
  [[nodiscard]] size_t slot(int32_t virtual_stage, int32_t micro_batch) const {
    return static_cast<size_t>(virtual_stage) * request_.num_micro_batches + micro_batch;
  }
  [[nodiscard]] int32_t virtual_stage(int32_t stage, int32_t chunk) const {
    return chunk * request_.num_stages +
           place_within_chunk(request_.placement, request_.num_stages, chunk, stage);
  }
  // Whether what ended then on `from` has come to `to` by now.
  [[nodiscard]] bool has_come(int64_t end, int32_t from, int32_t to, int64_t now) const {
    const int32_t S = request_.num_stages;
    const auto stage = [&](int32_t v) {
      return place_within_chunk(request_.placement, S, v / S, v % S);
    };
    return end != kNever && end + (stage(from) == stage(to) ? 0 : request_.costs.delay) <= now;
  }

  bool run_one(int32_t stage, int64_t now) {
    for (int32_t chunk = request_.num_chunks - 1; chunk >= 0; --chunk) {
      if (run_input_gradient(stage, chunk, now)) return true;
    }
    for (int32_t chunk = request_.num_chunks - 1; chunk >= 0; --chunk) {
      if (run_forward(stage, chunk, now)) return true;
    }
    for (int32_t chunk = request_.num_chunks - 1; chunk >= 0; --chunk) {
      if (run_weight_gradient(stage, chunk, now)) return true;
    }
    return false;
  }

  bool run_input_gradient(int32_t stage, int32_t chunk, int64_t now) {
    const int32_t v = virtual_stage(stage, chunk);
    const int32_t k = first(gradient_end_, v);
    if (k < 0) return false;
    const int64_t own = forward_end_[slot(v, k)];
    const bool is_ready =
        own != kNever && own <= now &&
        (v + 1 == num_virtual_ || has_come(gradient_end_[slot(v + 1, k)], v + 1, v, now));
    return is_ready && start(stage, {kInputGradient, k, chunk}, gradient_end_[slot(v, k)], now);
  }

  bool run_forward(int32_t stage, int32_t chunk, int64_t now) {
    const int32_t v = virtual_stage(stage, chunk);
    const int32_t k = first(forward_end_, v);
    if (k < 0 || (v > 0 && !has_come(forward_end_[slot(v - 1, k)], v - 1, v, now))) return false;
    // Of a chunk as many are alive as it has forwards without their weight gradients.
    const int32_t num_over = std::max(0, first(weight_end_, v));
    if (k - num_over >= request_.num_stages) return false;
    return start(stage, {kForward, k, chunk}, forward_end_[slot(v, k)], now);
  }

  bool run_weight_gradient(int32_t stage, int32_t chunk, int64_t now) {
    const int32_t v = virtual_stage(stage, chunk);
    const int32_t k = first(weight_end_, v);
    if (k < 0 || gradient_end_[slot(v, k)] == kNever || gradient_end_[slot(v, k)] > now) {
      return false;
    }
    return start(stage, {kWeightGradient, k, chunk}, weight_end_[slot(v, k)], now);
  }

  // The first micro-batch of the virtual stage that has no end; -1: all have.
  [[nodiscard]] int32_t first(const std::vector<int64_t>& ends, int32_t v) const {
    for (int32_t k = 0; k < request_.num_micro_batches; ++k) {
      if (ends[slot(v, k)] == kNever) return k;
    }
    return -1;
  }

  bool start(int32_t stage, const Action& action, int64_t& end, int64_t now) {
    end = now + cost_of(action.kind, request_.costs);
    free_at_[stage] = end;
    orders_[stage].push_back(action);
    return true;
  }

  const OrderRequest& request_;
  int32_t num_virtual_;
  // By virtual stage and micro-batch.
  std::vector<int64_t> forward_end_;
  std::vector<int64_t> gradient_end_;
  std::vector<int64_t> weight_end_;
  std::vector<int64_t> free_at_;  // by stage
  ComputeOrders orders_;
};

}  // namespace

ComputeOrders zb_v_orders(const OrderRequest& request) { return ListScheduler(request).run(); }

}  // namespace trireme
