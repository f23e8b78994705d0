// try_policies(): which policy, with which sizes, makes a step of a workload short, by running each
// of them over a grid of sizes in the model of iteration.h.
#pragma once

#include <array>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/comm/iteration.h"

namespace trireme {

struct TriedPolicy {
  const PolicyRow* row = nullptr;
  PolicyOptions options;  // what is 0 is the policy's own choice
  SimTime step = 0;
  std::array<SimTime, kNumTransferKinds> exposed = {};  // see StepsResult
};

// Every policy with its own sizes, and those that take sizes with 1 to 64 MB: pieces, with a credit
// of four of them, or buckets. Sizes that would make more than a few hundred units of a stage are
// left out, so it takes a second or so. The shortest steps first; of equal ones the policies in the
// order of their table. Error: see run_steps().
[[nodiscard]] Result<std::vector<TriedPolicy>> try_policies(const Workload& workload);

}  // namespace trireme
