// `dear`: the two halves of an all-reduce apart (Zhang et al., DeAR: Accelerating Distributed Deep
// Learning with Fine-Grained All-Reduce Pipelining, ICDCS 2023).
//
//   F F F B B B
//         =r=r=r|a  a a            reduce-scatters behind the backward, all-gathers before the
//               F F F B B B        forward of the next step
//
// Groups are made in the order of the forward. Reduce-scatters start as their groups are ready;
// when the backward is over and all of them are, the first all-gather starts; each next one when
// the forward comes to the group before it. So one all-gather is ahead, and none needs a priority.

#include <utility>

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

std::vector<std::vector<int32_t>> groups_by_forward(const StageProblem& problem,
                                                    int64_t bucket_bytes) {
  std::vector<std::vector<int32_t>> groups;
  int64_t bytes = 0;
  for (size_t g = 0; g < problem.gradients.size(); ++g) {
    const int64_t more = problem.gradients[g].bytes;
    // Two groups that the same task needs first would wait for each other.
    const bool may_close =
        !groups.empty() &&
        problem.gradients[g].deadline >
            problem.gradients[static_cast<size_t>(groups.back().front())].deadline;
    if (groups.empty() || (may_close && bytes + more > bucket_bytes)) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(static_cast<int32_t>(g));
    bytes += more;
  }
  return groups;
}

class Dear final : public Policy {
 public:
  Dear(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), groups_(groups_by_forward(problem, options.bucket_bytes)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return groups_.on_ready(problem_, ready, Operation::kReduceScatter);
  }

  std::vector<UnitKey> pick(const CommState& state) override { return first_alone(state); }

  std::vector<Unit> on_finish(const Unit& unit) override {
    if (unit.operation != Operation::kReduceScatter) return {};
    size_t& num_scattered = num_scattered_[unit.iteration];
    if (++num_scattered < groups_.groups().size()) return {};
    num_scattered_.erase(unit.iteration);
    return {all_gather(0, unit.iteration)};
  }

  std::vector<Unit> on_used(const GradientRef& used) override {
    const int32_t group = groups_.group_of(used.gradient);
    const auto next = static_cast<size_t>(group) + 1;
    const bool is_first = groups_.groups()[static_cast<size_t>(group)].front() == used.gradient;
    if (!is_first || next == groups_.groups().size()) return {};
    return {all_gather(next, used.iteration)};
  }

 private:
  [[nodiscard]] Unit all_gather(size_t group, int32_t iteration) const {
    Unit unit{.operation = Operation::kAllGather, .iteration = iteration};
    for (const int32_t g : groups_.groups()[group]) {
      unit.parts.push_back(
          {.gradient = g, .bytes = problem_.gradients[static_cast<size_t>(g)].bytes});
    }
    return unit;
  }

  StageProblem problem_;
  Groups groups_;
  std::map<int32_t, size_t> num_scattered_;  // by iteration
};

}  // namespace

std::unique_ptr<Policy> make_dear(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<Dear>(problem, options);
}

}  // namespace trireme
