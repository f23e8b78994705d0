// Messages and all-reduces between ranks, timed over their transport.
//
// Two ranks play ping-pong: a sample is half of a round trip, whose receives are posted before the
// message leaves, as the executor does it. The first rank of an experiment decides how often, from
// what the first messages of a size have taken, and tells the others; sizes that would take longer
// than their share of the budget are left out, but for the three smallest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cost/link_fit.h"
#include "trireme/exec/transport.h"

namespace trireme {

struct LinkSamples {
  std::vector<TimedSize> sizes;
  // Seconds of all threads of the first rank a byte that it sends or receives; of the longest
  // messages, the median.
  double cpu_per_byte = 0;
};

// Both ranks call it; the samples are those of the first, and empty at the second.
[[nodiscard]] Result<LinkSamples> probe_pair(Transport& transport, int32_t rank, int32_t first,
                                             int32_t second, double budget_s);

// All members call it, after join(); `is_first`: the one that decides, and has the samples.
[[nodiscard]] Result<LinkSamples> probe_all_reduce(Transport& transport,
                                                   CommunicatorId communicator, bool is_first,
                                                   double budget_s);

}  // namespace trireme
