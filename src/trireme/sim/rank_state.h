// What the simulator knows of ranks, their messages and their collectives while a step runs.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/schedule/schedule.h"
#include "trireme/sim/collective_phases.h"
#include "trireme/sim/final_sums.h"
#include "trireme/sim/fluid_network.h"

namespace trireme {

// All messages of a sender to a receiver: their bytes go one after the other.
struct Channel {
  int32_t receiver = 0;
  std::vector<LinkUse> path;
  SimTime latency = 0;
  double cpu_per_byte = 0;
  std::deque<int32_t> arriving;  // transfers whose latency has passed
  bool is_busy = false;
};

constexpr SimTime kNever = -1;

struct Transfer {
  Action receive;  // of the receiver
  int32_t sender = 0;
  int32_t receiver = 0;
  int32_t channel = 0;  // of the sender
  int64_t bytes = 0;
  SimTime send_posted = kNever;
  SimTime receive_posted = kNever;
  SimTime done = kNever;
  bool has_begun = false;
};

// One that a member has issued and that is not over.
struct Collective {
  Action action;
  int64_t bytes = 0;
  size_t num_come = 0;
  size_t phase = 0;
};

// Its collectives run one after the other, in the order in which members issue them.
struct Communicator {
  std::vector<int32_t> members;
  std::vector<CollectivePhase> phases;
  std::deque<Collective> collectives;
};

// A collective that a rank has issued and that is not over.
struct IssuedCollective {
  Action action;
  SimTime begin = 0;
};

enum class Waiting : uint8_t { kNot, kReceive, kSend, kCollective };

struct Rank {
  size_t at = 0;              // the next action
  size_t next_receive = 0;    // the next action that could be a receive to post
  int32_t num_posted = 0;     // receives that are posted and not yet waited for
  std::deque<int32_t> sends;  // transfers that are not known to be over
  Waiting waiting = Waiting::kNot;
  int32_t waits_for = -1;  // a transfer
  Action waits_for_collective;
  std::vector<IssuedCollective> collectives;  // in the order of issue
  // Of early sums: all there will be, those that are final, and the place behind those issued.
  std::vector<FinalSum> sums;
  std::vector<Action> final_sums;
  size_t next_sum = 0;
  SimTime wait_begin = 0;
  bool has_paid = false;  // the processor's share in the send at hand
  SimTime compute = 0;
  SimTime end = 0;
  int64_t memory = 0;
  int64_t peak = 0;
  std::deque<Channel> channels;  // few: its neighbours; flows hold their paths
  size_t first_transfer = 0;     // of those that it receives
};

}  // namespace trireme
