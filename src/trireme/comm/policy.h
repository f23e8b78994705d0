// Policy: when the gradients of a stage travel, in what pieces, and in what order.
//
// A policy is made for one stage, from what a step looks like when communication costs nothing, and
// plans then what it plans. While steps run (iteration.h) it is asked:
//
//   on_ready    a gradient is ready: which units of it (all, part, or some of those kept back) wait
//               from now on
//   pick        which of the waiting units start now, as one; asked again until it names none
//   on_finish   a unit has arrived: what waits because of that (the second half of an all-reduce)
//   on_used     the first task that needs the gradient begins: what waits because of that
//
// It never sees what a rank alone could see, such as how fast a link is today: the order that comes
// out is that of all members, and is frozen into the schedule. Ties are broken by the order of
// arrival, so a policy that is asked twice answers twice the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/comm/transfer.h"

namespace trireme {

// Of a stage, as a policy sees it. Times are those of a step whose communication costs nothing,
// from the step's begin.
struct GradientView {
  TransferKind kind = TransferKind::kAllReduce;
  int64_t bytes = 0;
  SimTime ready = 0;
  SimTime deadline = 0;  // its first use, one step later
  SimTime use_time = 0;  // from its first use to that of the next gradient
};

struct StageProblem {
  std::vector<GradientView> gradients;  // by deadline: 0 is needed first
  Route route;                          // of all of them
  SimTime step = 0;
};

// 0: the policy's own choice.
struct PolicyOptions {
  int64_t bucket_bytes = 0;  // gradients are joined up to so many
  int64_t chunk_bytes = 0;   // and cut into pieces of so many
  int64_t credit_bytes = 0;  // that may be on their way at once
  bool operator==(const PolicyOptions&) const = default;
};

struct UnitPart {
  int32_t gradient = 0;  // index into StageProblem::gradients
  int64_t bytes = 0;
  bool operator==(const UnitPart&) const = default;
};

// What travels at once: a piece of a gradient, or several gradients or pieces of them.
struct Unit {
  Operation operation = Operation::kAllReduce;
  std::vector<UnitPart> parts;
  int64_t priority = 0;   // the smallest first
  int32_t iteration = 0;  // in which its gradients were made
  bool operator==(const Unit&) const = default;
};
[[nodiscard]] int64_t bytes_of(const Unit& unit);

struct UnitKey {
  int64_t priority = 0;
  int64_t sequence = 0;  // in which units came to wait
  auto operator<=>(const UnitKey&) const = default;
};

struct CommState {
  const std::map<UnitKey, Unit>& waiting;  // the most urgent first
  int32_t num_in_flight = 0;
  int64_t bytes_in_flight = 0;
};

struct GradientRef {
  int32_t gradient = 0;  // index into StageProblem::gradients
  int32_t iteration = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Together, each gradient's bytes leave once; with reduce-scatters, once and an all-gather each.
  virtual std::vector<Unit> on_ready(const GradientRef& ready) = 0;
  // Units of one operation and iteration; empty: none.
  virtual std::vector<UnitKey> pick(const CommState& state) = 0;
  virtual std::vector<Unit> on_finish(const Unit& /*unit*/) { return {}; }
  virtual std::vector<Unit> on_used(const GradientRef& /*used*/) { return {}; }
};

using PolicyMaker = std::unique_ptr<Policy> (*)(const StageProblem& problem,
                                                const PolicyOptions& options);

}  // namespace trireme
