// Who waited for whom: the events of a timeline that belong together over ranks.
//
// The n-th send of a step and micro-batch from a to b, in ascending order of chunks, is received by
// the n-th such receive of b: along the pipeline chunks ascend on both sides, wherever they lie.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/trace/timeline.h"

namespace trireme {

// A transfer from one rank to another. Indices of Timeline::events, -1 where there is none.
struct TransferMatch {
  int32_t sender = 0;
  int32_t receiver = 0;
  int64_t send = -1;
  int64_t receive = -1;
  int64_t wait = -1;  // of the receiver
};

// A collective of one step.
struct CollectiveMatch {
  std::vector<int64_t> members;  // indices of the kCollective events
  std::vector<int64_t> waits;    // and of the kWait events
};

struct Matches {
  std::vector<TransferMatch> transfers;
  std::vector<CollectiveMatch> collectives;
};

// In the order of the timeline's keys (step, ranks, action), whatever that of its events. Linear in
// the events but for a sort.
[[nodiscard]] Matches match_events(const Timeline& timeline);

}  // namespace trireme
