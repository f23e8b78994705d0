// The phases of a collective as flows: what simulate.h says of its algorithms.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/cluster/link_graph.h"
#include "trireme/sim/fluid_network.h"
#include "trireme/sim/simulate.h"

namespace trireme {

// Phases follow each other; each is a flow of the collective's bytes after a latency.
struct CollectivePhase {
  std::vector<LinkUse> path;  // empty: it takes its latency only
  SimTime latency = 0;
};

// `members`: devices, ascending, at least two.
[[nodiscard]] std::vector<CollectivePhase> collective_phases(CollectiveAlgorithm algorithm,
                                                             const std::vector<int32_t>& members,
                                                             LinkGraph& links);

}  // namespace trireme
