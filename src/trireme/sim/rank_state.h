// What the simulator knows of a rank while a step runs.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/schedule/schedule.h"
#include "trireme/sim/final_sums.h"
#include "trireme/sim/quota.h"

namespace trireme {

// A collective that a rank has issued and that is not over.
struct IssuedCollective {
  Action action;
  SimTime begin = 0;
};

enum class Waiting : uint8_t { kNot, kReceive, kSend, kCollective };

struct Rank {
  Quota quota;                // of its processor
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
};

}  // namespace trireme
