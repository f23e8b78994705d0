// pass_memory(): what the passes of a virtual stage hold in memory besides its parameters: found by
// walking its nodes forward and backward, each tensor from where it is made to its last use.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/cost/graph_work.h"
#include "trireme/cost/saved_values.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/partition.h"

namespace trireme {

// Of one micro-batch.
struct PassMemory {
  // From a forward to its backward, what was received included; without what is sent, which is
  // held anyway until the end of the step.
  int64_t kept_bytes = 0;
  int64_t deferred_bytes = 0;   // from an input gradient to its weight gradient
  int64_t transient_bytes = 0;  // while a forward or a backward runs, beyond what is kept
  // The most that a pass holds, with what it was handed and what is kept.
  int64_t forward_peak_bytes = 0;
  int64_t backward_peak_bytes = 0;
  int64_t split_peak_bytes = 0;  // of an input gradient that leaves its weight gradient for later
  bool operator==(const PassMemory&) const = default;
};

[[nodiscard]] PassMemory pass_memory(const Graph& graph, const VirtualStage& stage,
                                     const SavedValues& saved, const std::vector<NodeWork>& works);

}  // namespace trireme
