// Brings the clocks of hosts together, from what cannot be otherwise.
//
// A message is not there before it was sent, and a collective does not end before its last member
// came: with o the offset that is added to a host's clock,
//
//   begin(send) + o(sender's host) <= end(receive) + o(receiver's host)
//
// for each matched pair (Hu et al., dPRO, MLSys 2022, section 4.2). With d(a, b) the least
// end - begin of all messages from a to b, these are difference constraints, o(a) - o(b) <= d(a,
// b); the greatest and the least solution with o(first host) = 0 are shortest paths, and their mean
// is a solution, too: between two hosts with messages both ways it is that of NTP, half way between
// the bounds, where the fastest messages of both directions take equally long.
#pragma once

#include <vector>

#include "trireme/base/result.h"
#include "trireme/trace/timeline.h"

namespace trireme {

// REQUIRES: a timeline with hosts, whose times times the number of hosts are less than 2^62.
//
// By host: the nanoseconds to add to its clock; 0 for the first host. A host that messages bound on
// one side only lies at that bound; one without messages has its first event with that of the
// first. Error when no offsets meet all constraints: a clock was set or drifted within the
// timeline.
[[nodiscard]] Result<std::vector<SimTime>> clock_offsets(const Timeline& timeline);

}  // namespace trireme
