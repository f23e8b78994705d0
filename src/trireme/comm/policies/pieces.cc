#include "trireme/comm/policies/pieces.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace trireme {

std::vector<Unit> cut(const StageProblem& problem, const GradientRef& ready, int64_t chunk_bytes,
                      int64_t priority) {
  const GradientView& gradient = problem.gradients[static_cast<size_t>(ready.gradient)];
  const int64_t most = chunk_bytes > 0 ? chunk_bytes : gradient.bytes;
  std::vector<Unit> units;
  for (int64_t begin = 0; begin < gradient.bytes; begin += most) {
    const int64_t bytes = std::min(most, gradient.bytes - begin);
    units.push_back({.operation = operation_of(gradient.kind),
                     .parts = {{.gradient = ready.gradient, .bytes = bytes}},
                     .priority = priority++,
                     .iteration = ready.iteration});
  }
  return units;
}

std::vector<UnitKey> first_alone(const CommState& state) {
  if (state.num_in_flight > 0) return {};
  return {state.waiting.begin()->first};
}

double bytes_in(SimTime time, const Route& route) {
  constexpr int64_t kBytes = 1'000'000'000;
  const UnitCost cost = unit_cost(Operation::kAllReduce, kBytes, route);
  const SimTime bytes = cost.on_link - unit_cost(Operation::kAllReduce, 0, route).on_link;
  if (bytes == 0) return 0;
  return static_cast<double>(kBytes) * static_cast<double>(time) / static_cast<double>(bytes);
}

std::vector<int32_t> by_readiness(const StageProblem& problem) {
  std::vector<int32_t> order;
  for (size_t g = 0; g < problem.gradients.size(); ++g) order.push_back(static_cast<int32_t>(g));
  std::ranges::sort(order, {}, [&](int32_t g) {
    return std::tuple(problem.gradients[static_cast<size_t>(g)].ready, -g);
  });
  return order;
}

Groups::Groups(std::vector<std::vector<int32_t>> groups) : groups_(std::move(groups)) {
  size_t num_gradients = 0;
  for (const std::vector<int32_t>& group : groups_) num_gradients += group.size();
  group_of_.resize(num_gradients);
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const int32_t g : groups_[i]) group_of_[static_cast<size_t>(g)] = static_cast<int32_t>(i);
  }
}

std::vector<Unit> Groups::on_ready(const StageProblem& problem, const GradientRef& ready,
                                   Operation operation) {
  const int32_t index = group_of(ready.gradient);
  const std::vector<int32_t>& group = groups_[static_cast<size_t>(index)];
  const auto key = std::pair(ready.iteration, index);
  if (++num_ready_[key] < group.size()) return {};
  num_ready_.erase(key);
  Unit unit{.operation = operation, .iteration = ready.iteration};
  for (const int32_t g : group) {
    unit.parts.push_back({.gradient = g, .bytes = problem.gradients[static_cast<size_t>(g)].bytes});
  }
  return {unit};
}

std::vector<std::vector<int32_t>> buckets(const StageProblem& problem, int64_t bucket_bytes) {
  std::vector<std::vector<int32_t>> groups;
  int64_t bytes = 0;
  for (const int32_t g : by_readiness(problem)) {
    const int64_t more = problem.gradients[static_cast<size_t>(g)].bytes;
    if (groups.empty() || bytes + more > bucket_bytes) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(g);
    bytes += more;
  }
  return groups;
}

}  // namespace trireme
