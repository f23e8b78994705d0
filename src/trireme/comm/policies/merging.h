// merged_groups(): which gradients MG-WFBP and ASC-WFBP join, found by walking over the backward.
//
// Gradients l = 1, 2, ... are ready at r_l. Sent one by one, gradient l starts at
//
//   s_l = max(s_(l-1) + t(bytes of l-1), r_l)        t(bytes) = alpha + beta bytes
//
// and l is joined to l+1, starting with it, when l has not started by the time that l+1 is ready
// (s_l > r_(l+1)), which costs nothing and saves alpha; by MG-WFBP also when waiting for l+1 costs
// less than the alpha that it saves (r_(l+1) - s_l < alpha).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/policy.h"

namespace trireme {

enum class Merging : uint8_t { kWhatHasNotStarted, kAlsoWhatIsWorthWaiting };

// In the order in which they start.
[[nodiscard]] std::vector<std::vector<int32_t>> merged_groups(const StageProblem& problem,
                                                              Merging merging);

}  // namespace trireme
