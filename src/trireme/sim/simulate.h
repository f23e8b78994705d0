// simulate(): one step of a Schedule on a Cluster, in virtual time -> a Timeline.
//
// A rank does what the executor does (exec/executor.h): it runs its list in order on one compute
// lane; a send is posted and costs nothing; a receive is the wait for a message that was asked for
// `look_ahead` receives earlier; of sends at most kMaxSendsInFlight are not over; a collective is
// waited for, and begins when its last member has come.
//
// A transfer begins when its send and its receive are posted (rendezvous), or with its send
// (eager). It takes the latencies of its path, during which it occupies no link, and then its bytes
// at the rate that its links give it (fluid_network.h). Those of one sender to one receiver go one
// after the other, as on one connection. Collectives are one flow over the links of all members:
//
//   ring              2 (n-1)/n bytes over each hop of a ring in the order of the ranks, 2 (n-1)
//                     times the latency of its slowest hop
//   halving-doubling  the same bytes, 2 log2 n latencies (Rabenseifner); partners at distance
//                     1, 2, 4, ... ; n is rounded up to a power of two for the latencies
//   tree              2 bytes up and down a binary tree, 2 log2 n latencies
//   hierarchical      a ring within each host, and one over the first ranks of the hosts
//
// Everything follows from the arguments: the same ones give the same timeline.
#pragma once

#include <cstdint>

#include "trireme/base/result.h"
#include "trireme/cluster/cluster.h"
#include "trireme/cost/step_costs.h"
#include "trireme/schedule/schedule.h"
#include "trireme/trace/timeline.h"

namespace trireme {

enum class CollectiveAlgorithm : uint8_t { kRing, kHalvingDoubling, kTree, kHierarchical };
enum class TransferMode : uint8_t { kRendezvous, kEager };

struct SimOptions {
  CollectiveAlgorithm collectives = CollectiveAlgorithm::kRing;
  TransferMode transfers = TransferMode::kRendezvous;
  double jitter = 0;  // of compute: the standard deviation of the logarithm of its duration
  uint64_t seed = 0;  // of the jitter
  bool records_events = true;  // false: the timeline has its header only
};

struct Simulation {
  Timeline timeline;             // with the memory high-water mark of each rank
  SimTime step = 0;              // from the begin to the end of the last rank
  std::vector<SimTime> compute;  // by rank: how long it computed
  int64_t num_events = 0;
  double busiest_link_share = 0;  // of the step, in which its bandwidth was used
  std::string busiest_link;
};

// Errors: fewer devices than ranks; costs that do not fit the schedule. REQUIRES: a verified
// schedule and a verified cluster.
[[nodiscard]] Result<Simulation> simulate(const Schedule& schedule, const StepCosts& costs,
                                          const Cluster& cluster, const SimOptions& options = {});

}  // namespace trireme
