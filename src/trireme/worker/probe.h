// probe_rank(): one rank of `trireme probe`.
//
// Every rank tells rank 0 its host and what its processor computes, all at the same time, as in a
// training. Then rank 0 chooses the experiments, which run one after the other while the other
// ranks wait: two ranks of each host; a rank of each pair of hosts, or with many hosts of
// neighbours and of hosts across; all-reduces in a host, over a rank of each host, and over all.
//
// Rank 0 publishes each experiment as a step, and the result:
//
//   {"event": "result", "table": "...", "cluster": "...": the YAML, "notes": [...]}
//
// and writes the YAML to -o.
#pragma once

#include "trireme/worker/rank_loop.h"

namespace trireme {

// REQUIRES: the setup of a probe.
[[nodiscard]] RankOutcome probe_rank(const RunSetup& setup, const RankContext& context);

}  // namespace trireme
