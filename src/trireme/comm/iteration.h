// run_steps(): a Workload under a policy, in virtual time, step after step until they are alike.
//
// Links are modelled once, behind the policies. A unit first takes its start-up, during which it
// occupies no link, and then its bytes. Units that are in flight of one stage take their links in
// the order in which they started, or share them equally (PolicyRow::shares_link); so do messages
// from a stage to another. Flows that are on a link at the same time share it equally, but for
// messages of a policy whose messages go first, which leave nothing of their sender's link to
// gradients. A flow goes at the share of the most crowded of its links.
//
// Everything is in whole nanoseconds (a share is rounded to 1/256 of one), and follows from the
// arguments.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/comm/policies.h"
#include "trireme/comm/workload.h"

namespace trireme {

struct StepsOptions {
  PolicyOptions policy;
  bool has_free_network = false;
  bool forces_own_layer = false;  // the forward waits for its layer alone, whatever was published
  SimTime most_hold = 5'000'000;  // the bound of an arbiter, of one transfer
};

// A unit as it went.
struct SentUnit {
  int32_t stage = 0;
  Unit unit;
  UnitCost cost;
  SimTime start = 0;  // since the first gradient of its stage and step was ready
  SimTime end = 0;
  bool operator==(const SentUnit&) const = default;
};

struct StepsResult {
  SimTime step = 0;     // from one to the next, in the steady state
  SimTime compute = 0;  // the same with a network that costs nothing
  // By TransferKind: how long tasks waited for such a transfer in a step, the most of any device.
  std::array<SimTime, kNumTransferKinds> exposed = {};
  std::vector<SentUnit> order;  // of the last step, as they started
  bool operator==(const StepsResult&) const = default;
};

// Error: a workload that does not verify.
[[nodiscard]] Result<StepsResult> run_steps(const Workload& workload, const PolicyRow& policy,
                                            const StepsOptions& options = {});

// What a policy for the gradients of a stage is made from; no gradients: it has none.
// Error: a workload that does not verify.
[[nodiscard]] Result<StageProblem> stage_problem(const Workload& workload, int32_t stage,
                                                 TableExchange exchange);

}  // namespace trireme
