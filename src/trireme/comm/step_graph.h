// StepGraph: which task waits for which transfer, once a policy has said what forwards wait for.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/policies.h"
#include "trireme/comm/workload.h"

namespace trireme {

struct Need {
  int32_t transfer = 0;
  int32_t distance = 0;  // from the step that makes it
};

struct StepGraph {
  std::vector<std::vector<std::vector<int32_t>>> made_by;  // by device and task: transfers
  std::vector<std::vector<std::vector<Need>>> needed_by;   // the same
  // By device: its gradients, those that are needed first at the front.
  std::vector<std::vector<int32_t>> gradients;
};

// REQUIRES: indices of the workload in their ranges.
[[nodiscard]] StepGraph step_graph(const Workload& workload, ForwardWaits waits,
                                   TableExchange exchange);

}  // namespace trireme
