// `prophet`: blocks that fit between bursts (Zhang et al., Prophet: Speeding up Distributed DNN
// Training with Predictable Communication Scheduling, ICPP 2021).
//
// Gradients become ready in bursts: a gap of more than twice the mean of the gaps before it ends
// one. When a burst is complete its gradients lie on a stack, the most urgent on top, over what is
// left of the bursts before. As much is sent from the top as the link carries until the next burst
// is complete; when the first layer's gradient is there, all that is left goes by priority, with a
// credit. So nothing less urgent is on the link when something more urgent becomes ready.
//
// Published for parameter servers, on BytePS, whose partitions these are. The credit of the last
// part has no published value; here it is four partitions.

#include <algorithm>
#include <utility>

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

struct Burst {
  size_t num_gradients = 0;
  int64_t budget_bytes = 0;
};

// The link carries at most what the gradient that it carries fastest says.
double bytes_per_ns(const StageProblem& problem) {
  double rate = 0;
  for (const GradientView& gradient : problem.gradients) {
    const UnitCost cost = unit_cost(Operation::kAllReduce, gradient.bytes, problem.route);
    const auto duration = static_cast<double>(std::max<SimTime>(1, cost.total()));
    rate = std::max(rate, static_cast<double>(gradient.bytes) / duration);
  }
  return rate;
}

std::vector<Burst> bursts_of(const StageProblem& problem) {
  const std::vector<int32_t> order = by_readiness(problem);
  std::vector<Burst> bursts;
  std::vector<SimTime> ends;
  SimTime sum = 0;
  SimTime num_gaps = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const SimTime ready = problem.gradients[static_cast<size_t>(order[i])].ready;
    const SimTime gap = i == 0 ? 0 : ready - ends.back();
    const bool is_new = i == 0 || (num_gaps > 0 && gap * num_gaps > 2 * sum);
    if (is_new) {
      bursts.emplace_back();
      ends.push_back(ready);
    }
    if (i > 0) {
      sum += gap;
      ++num_gaps;
    }
    ++bursts.back().num_gradients;
    ends.back() = ready;
  }
  const double rate = bytes_per_ns(problem);
  for (size_t b = 0; b + 1 < bursts.size(); ++b) {
    bursts[b].budget_bytes =
        static_cast<int64_t>(static_cast<double>(ends[b + 1] - ends[b]) * rate);
  }
  return bursts;
}

class Prophet final : public Policy {
 public:
  Prophet(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), options_(options), bursts_(bursts_of(problem)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    // The last piece first, so that the first lies on top.
    std::vector<Unit> pieces =
        cut(problem_, ready, options_.chunk_bytes, priority_of(ready.gradient));
    std::ranges::reverse(pieces);
    for (Unit& piece : pieces) stack_.push_back(std::move(piece));
    if (++num_ready_ < bursts_[burst_].num_gradients) return {};
    num_ready_ = 0;
    const bool is_last = burst_ + 1 == bursts_.size();
    int64_t budget = bursts_[burst_].budget_bytes;
    burst_ = is_last ? 0 : burst_ + 1;
    if (is_last) return std::exchange(stack_, {});
    std::vector<Unit> released;
    while (!stack_.empty() && budget > bytes_of(stack_.back())) {
      budget -= bytes_of(stack_.back());
      released.push_back(std::move(stack_.back()));
      // Before the backward is over, in the order of release.
      released.back().priority = -1;
      stack_.pop_back();
    }
    return released;
  }

  std::vector<UnitKey> pick(const CommState& state) override {
    const UnitKey& first = state.waiting.begin()->first;
    const bool is_released = first.priority < 0;
    if (!is_released && state.bytes_in_flight >= options_.credit_bytes) return {};
    return {first};
  }

 private:
  StageProblem problem_;
  PolicyOptions options_;
  std::vector<Burst> bursts_;
  size_t burst_ = 0;
  size_t num_ready_ = 0;  // of the burst
  std::vector<Unit> stack_;
};

}  // namespace

std::unique_ptr<Policy> make_prophet(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<Prophet>(problem, options);
}

}  // namespace trireme
