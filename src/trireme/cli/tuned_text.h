// What `trireme tune-comm` has tried, and what it picks, for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/comm/choice.h"

namespace trireme {

// Of the policies that --comm takes, the one with the shortest step; the default one with its own
// sizes where that is not a thousandth longer. REQUIRES: what try_policies() returns.
[[nodiscard]] const TriedPolicy& pick(const std::vector<TriedPolicy>& tried);

// As --bucket-bytes takes it, buckets or pieces; 0: the policy's own choice.
[[nodiscard]] int64_t bucket_bytes_of(const TriedPolicy& tried);

// The best of each policy, the shortest step first, and the pick. `compute`: of a step with a
// network that costs nothing. `notes`: sentences about where the numbers come from.
[[nodiscard]] std::string tuned_table(const std::vector<TriedPolicy>& tried, SimTime compute,
                                      const std::vector<std::string>& notes);
// All that was tried.
[[nodiscard]] std::string tuned_json(const std::vector<TriedPolicy>& tried, SimTime compute,
                                     const std::vector<std::string>& notes);

}  // namespace trireme
