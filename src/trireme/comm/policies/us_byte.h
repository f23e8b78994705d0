// UsBytePlan: the transfers that US-Byte plans for a step, and the time that they take by its own
// model. For the policy, and for tests of what the paper proves.
//
// Gradients are cut into blocks. While the backward runs, whenever the link is free a run of blocks
// of one ready gradient is sent, so many that it ends when the next gradient is ready: with gap g
// until then, alpha and beta of a transfer and T(rest) of all that is left of the gradient
//
//   g < alpha             one block
//   alpha <= g < T(rest)  ceil((g - alpha) / time of a block's bytes)
//   else                  the rest
//
// After the backward the rest of each gradient goes in one piece, in the order in which they are
// needed, which the paper proves best. Which of the ready gradients goes first while the backward
// runs is a permutation of priorities, found by search: from the last gradient to the second, one
// that starts early is tried with a priority that lets it end before another pre-empts it, and
// keeps it if the step is shorter.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/policy.h"

namespace trireme {

struct UsBytePlan {
  std::vector<UnitPart> runs;        // in the order in which they start
  SimTime backward_and_forward = 0;  // from the first gradient to the end of the last one's use
  bool operator==(const UsBytePlan&) const = default;
};
// REQUIRES: block_bytes > 0.
[[nodiscard]] UsBytePlan us_byte_plan(const StageProblem& problem, int64_t block_bytes);

}  // namespace trireme
