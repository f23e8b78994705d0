// simulate(): a Schedule on a Cluster, in virtual time -> a Timeline. The schedule is one step, or
// a run of several as one (schedule/unroll.h), whose batches become the steps of the timeline.
//
// A rank does what the executor does (exec/executor.h): it runs its list in order on one compute
// lane, whose device may have a part of each period only (quota.h); a send is posted and costs
// nothing; a receive is the wait for a message that was asked for `look_ahead` receives earlier; of
// sends at most kMaxSendsInFlight are not over; a collective begins when its last member has issued
// it and those before it in its communicator are over, and is waited for by the first action that
// needs it (waits_for()). With early sums an AR is issued within the pass in which its bucket is
// final, as the costs say (ChunkCosts::bucket_final).
//
// A transfer begins when its send and its receive are posted (rendezvous), or with its send
// (eager: what a transport with buffers of its own does, as the loopback and kernels for small
// messages). It takes the latencies of its path, during which it occupies no link, and then its
// bytes at the rate that its links give it (fluid_network.h). The bytes of one sender to one
// receiver go one after the other, as on one connection. Where a link has `cpu_per_byte`, the
// sender computes nothing for so long after it has posted, nor the receiver after it has waited.
// A collective is a few phases after each other, each a latency and then one flow over the links of
// all members at once. Of V bytes and n members:
//
//   ring              2 (n-1) latencies, 2 (n-1)/n V over each hop of a ring in the order of the
//                     ranks (Patarasu and Yuan 2009)
//   halving-doubling  phases of V/2, V/4, ... between partners at distance n/2, n/4, ..., and back
//                     (Thakur et al. 2005, 4.5); where n is no power of two, the rest hands its
//                     bytes in before, and gets the sum after
//   tree              ceil(log2 n) phases of V up a binomial tree, and as many down
//   hierarchical      a reduce-scatter by ring in each host, rings between hosts over a member's
//                     part each, an all-gather in each host
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
// By priority: what the flows of transfers leave of a link is for those of collectives, unless the
// schedule has one urgency.
enum class LinkSharing : uint8_t { kMaxMinFair, kTransfersFirst };

struct SimOptions {
  CollectiveAlgorithm collectives = CollectiveAlgorithm::kRing;
  TransferMode transfers = TransferMode::kRendezvous;
  LinkSharing sharing = LinkSharing::kMaxMinFair;
  double jitter = 0;  // 0 to 1, of compute: the standard deviation of the logarithm of its duration
  uint64_t seed = 0;  // of the jitter
  bool has_free_network = false;  // nothing that travels takes time
  bool records_events = true;     // false: the timeline has its header only
};

struct Simulation {
  Timeline timeline;             // with the memory high-water mark of each rank
  SimTime step = 0;              // from the begin to the end of the last rank
  std::vector<SimTime> compute;  // by rank: how long it computed
  int64_t num_events = 0;
  double busiest_link_share = 0;  // of the step, in which its bandwidth was used
  std::string busiest_link;
};

// Errors: fewer devices than ranks; costs that do not fit the schedule; a step of more than 146
// years. REQUIRES: a verified schedule that overlaps with no other, a verified cluster, costs up to
// kMaxStepCost.
[[nodiscard]] Result<Simulation> simulate(const Schedule& schedule, const StepCosts& costs,
                                          const Cluster& cluster, const SimOptions& options = {});

}  // namespace trireme
