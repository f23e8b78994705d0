// What several policies do: cutting a gradient, joining gradients into buckets, taking the first.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trireme/comm/policy.h"

namespace trireme {

[[nodiscard]] constexpr Operation operation_of(TransferKind kind) {
  return kind == TransferKind::kRows ? Operation::kRows : Operation::kAllReduce;
}

// A gradient in pieces of `chunk_bytes`, the last of what is left; 0: in one. Their priorities are
// `priority`, `priority` + 1, ...
[[nodiscard]] std::vector<Unit> cut(const StageProblem& problem, const GradientRef& ready,
                                    int64_t chunk_bytes, int64_t priority);

// Of gradient g, so that all pieces of those before it are more urgent.
[[nodiscard]] constexpr int64_t priority_of(int32_t gradient) { return int64_t{gradient} << 32; }

// The most urgent unit, when none is in flight.
[[nodiscard]] std::vector<UnitKey> first_alone(const CommState& state);

// What an all-reduce brings to its end in so long, once it has started up.
[[nodiscard]] double bytes_in(SimTime time, const Route& route);

// Gradients in the order in which they are ready; where several are at once, those that are needed
// last come first, as a backward makes them.
[[nodiscard]] std::vector<int32_t> by_readiness(const StageProblem& problem);

// Groups of gradients that travel together once all of them are ready.
class Groups {
 public:
  explicit Groups(std::vector<std::vector<int32_t>> groups);
  // The unit of the gradient's group when it was the last of it; else none.
  std::vector<Unit> on_ready(const StageProblem& problem, const GradientRef& ready,
                             Operation operation = Operation::kAllReduce);
  [[nodiscard]] const std::vector<std::vector<int32_t>>& groups() const { return groups_; }
  [[nodiscard]] int32_t group_of(int32_t gradient) const {
    return group_of_[static_cast<size_t>(gradient)];
  }

 private:
  std::vector<std::vector<int32_t>> groups_;
  std::vector<int32_t> group_of_;
  std::map<std::pair<int32_t, int32_t>, size_t> num_ready_;  // by iteration and group
};

// Neighbours in the order in which they are ready, as long as they have at most `bucket_bytes`
// together; 0: each alone.
[[nodiscard]] std::vector<std::vector<int32_t>> buckets(const StageProblem& problem,
                                                        int64_t bucket_bytes);

}  // namespace trireme
