// `us-byte`: unequal blocks (Gao et al., US-Byte: An Efficient Communication Framework for
// Scheduling Unequal-Sized Tensor Blocks in Distributed Deep Learning, TPDS 2024); see us_byte.h.
// Its order is planned, so it waits for the next run of the plan even where another is ready.

#include "trireme/comm/policies/us_byte.h"

#include <algorithm>
#include <optional>

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

struct Planned {
  UsBytePlan plan;
  std::vector<std::optional<SimTime>> first_start;  // by gradient, during the backward
};

class Planner {
 public:
  Planner(const StageProblem& problem, int64_t block_bytes)
      : problem_(problem), block_bytes_(block_bytes), order_(by_readiness(problem)) {}

  // `priorities`: by gradient, the smallest first.
  [[nodiscard]] Planned plan(const std::vector<int32_t>& priorities) const {
    State state{.now = gradient(order_[0]).ready};
    state.arrival.resize(problem_.gradients.size());
    state.left.assign(problem_.gradients.size(), 0);
    state.planned.first_start.resize(problem_.gradients.size());
    for (const int32_t g : order_) {
      send_until(gradient(g).ready, priorities, state);
      state.left[static_cast<size_t>(g)] = gradient(g).bytes;
    }
    for (size_t g = 0; g < state.left.size(); ++g) {
      if (state.left[g] > 0) send(static_cast<int32_t>(g), state.left[g], state);
    }
    SimTime used = 0;
    for (size_t g = 0; g < state.left.size(); ++g) {
      used = std::max(used, state.arrival[g]) + problem_.gradients[g].use_time;
    }
    state.planned.plan.backward_and_forward = used - gradient(order_[0]).ready;
    return state.planned;
  }

  [[nodiscard]] const GradientView& gradient(int32_t g) const {
    return problem_.gradients[static_cast<size_t>(g)];
  }
  [[nodiscard]] SimTime seconds_of(int64_t bytes) const {
    return unit_cost(Operation::kAllReduce, bytes, problem_.route).total();
  }
  [[nodiscard]] const std::vector<int32_t>& order() const { return order_; }

 private:
  struct State {
    SimTime now = 0;
    SimTime run_start = 0;      // of the last run
    int64_t run_bytes = 0;      // the same
    std::vector<int64_t> left;  // by gradient: what is ready and not sent
    std::vector<SimTime> arrival;
    Planned planned;
  };

  void send_until(SimTime time, const std::vector<int32_t>& priorities, State& state) const {
    while (state.now < time) {
      int32_t best = -1;
      for (const int32_t g : order_) {
        if (state.left[static_cast<size_t>(g)] == 0) continue;
        if (best < 0 ||
            priorities[static_cast<size_t>(g)] < priorities[static_cast<size_t>(best)]) {
          best = g;
        }
      }
      if (best < 0) {
        state.now = time;
        return;
      }
      auto& start = state.planned.first_start[static_cast<size_t>(best)];
      if (!start.has_value()) start = state.now;
      send(best, bytes_for(time - state.now, state.left[static_cast<size_t>(best)]), state);
    }
  }

  [[nodiscard]] int64_t bytes_for(SimTime gap, int64_t left) const {
    const SimTime alpha = seconds_of(0);
    const SimTime block = seconds_of(block_bytes_) - alpha;
    if (gap >= seconds_of(left) || block == 0) return left;
    int64_t blocks = 1;
    if (gap > alpha) blocks = (gap - alpha + block - 1) / block;
    return std::min(left, blocks * block_bytes_);
  }

  // Two runs of the same gradient after each other are one.
  void send(int32_t g, int64_t bytes, State& state) const {
    std::vector<UnitPart>& runs = state.planned.plan.runs;
    const bool goes_on = !runs.empty() && runs.back().gradient == g &&
                         state.now == state.run_start + seconds_of(state.run_bytes);
    if (goes_on) {
      runs.back().bytes += bytes;
      state.run_bytes += bytes;
    } else {
      runs.push_back({.gradient = g, .bytes = bytes});
      state.run_start = state.now;
      state.run_bytes = bytes;
    }
    state.now = state.run_start + seconds_of(state.run_bytes);
    state.left[static_cast<size_t>(g)] -= bytes;
    state.arrival[static_cast<size_t>(g)] = state.now;
  }

  const StageProblem& problem_;
  int64_t block_bytes_;
  std::vector<int32_t> order_;  // as they are ready
};

// The gradient that is ready last by `time`: the one whose priority ends what starts before.
int32_t ready_last_by(const Planner& planner, SimTime time) {
  int32_t last = planner.order()[0];
  for (const int32_t g : planner.order()) {
    if (planner.gradient(g).ready < time) last = g;
  }
  return last;
}

}  // namespace

UsBytePlan us_byte_plan(const StageProblem& problem, int64_t block_bytes) {
  const Planner planner(problem, block_bytes);
  std::vector<int32_t> priorities;
  for (size_t g = 0; g < problem.gradients.size(); ++g) {
    priorities.push_back(static_cast<int32_t>(g));
  }
  Planned best = planner.plan(priorities);
  for (auto l = static_cast<int32_t>(problem.gradients.size()) - 1; l >= 1; --l) {
    const auto start = best.first_start[static_cast<size_t>(l)];
    if (!start.has_value()) continue;
    const SimTime whole = *start + planner.seconds_of(planner.gradient(l).bytes);
    const int32_t k = ready_last_by(planner, whole);
    if (k >= l) continue;
    std::vector<int32_t> candidate = priorities;
    const int32_t from = priorities[static_cast<size_t>(k)];
    for (int32_t g = k; g < l; ++g) ++candidate[static_cast<size_t>(g)];
    candidate[static_cast<size_t>(l)] = from;
    Planned tried = planner.plan(candidate);
    if (tried.plan.backward_and_forward >= best.plan.backward_and_forward) continue;
    best = tried;
    priorities = candidate;
    l = k + 1;  // the loop goes on at k
  }
  return best.plan;
}

namespace {

class UsByte final : public Policy {
 public:
  UsByte(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), runs_(us_byte_plan(problem, options.chunk_bytes).runs) {}

  // The runs of a gradient, by their places in the plan.
  std::vector<Unit> on_ready(const GradientRef& ready) override {
    std::vector<Unit> units;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].gradient != ready.gradient) continue;
      const GradientView& gradient = problem_.gradients[static_cast<size_t>(ready.gradient)];
      units.push_back({.operation = operation_of(gradient.kind),
                       .parts = {runs_[i]},
                       .priority = ready.iteration * static_cast<int64_t>(runs_.size()) +
                                   static_cast<int64_t>(i),
                       .iteration = ready.iteration});
    }
    return units;
  }

  std::vector<UnitKey> pick(const CommState& state) override {
    const UnitKey& first = state.waiting.begin()->first;
    if (state.num_in_flight > 0 || first.priority != next_) return {};
    ++next_;
    return {first};
  }

 private:
  StageProblem problem_;
  std::vector<UnitPart> runs_;
  int64_t next_ = 0;  // place in the plans of all iterations
};

}  // namespace

std::unique_ptr<Policy> make_us_byte(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<UsByte>(problem, options);
}

}  // namespace trireme
