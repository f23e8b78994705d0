// SimulatedTransfers: messages between stages, from the posting of their sends and receives to
// their end: when they begin, what they hold in memory, which processor they take (simulate.h).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/sim/simulation_state.h"

namespace trireme {

class SimulatedTransfers {
 public:
  // `state`, whose ranks are there, outlives it.
  explicit SimulatedTransfers(SimulationState& state);

  // Posts receives of the rank until `count` are posted and not yet waited for.
  void post_receives(int32_t rank, SimTime now, int32_t count);
  // The rank's next action. False: the rank goes on later.
  bool send(int32_t rank, const Action& action, SimTime now);
  bool receive(int32_t rank, const Action& action, SimTime now);
  // Its last actions are over. False: it waits for one of its sends.
  bool collect_sends(int32_t rank, SimTime now);

  // What the agenda says of a transfer.
  void begin(int32_t id, SimTime now);
  void end(int32_t id, SimTime now);

 private:
  static constexpr SimTime kNever = -1;
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
  // All messages of a sender to a receiver: their bytes go one after the other.
  struct Channel {
    int32_t receiver = 0;
    std::vector<LinkUse> path;
    SimTime latency = 0;
    double cpu_per_byte = 0;
    std::deque<int32_t> arriving;  // transfers whose latency has passed
    bool is_busy = false;
  };

  [[nodiscard]] int32_t transfer_of(int32_t receiver, const Action& receive) const;
  int32_t channel_to(int32_t sender, int32_t receiver);
  [[nodiscard]] Channel& channel_of(const Transfer& transfer);
  [[nodiscard]] SimTime processor_time(const Transfer& transfer);
  void begin_if_ready(int32_t id, SimTime now);
  // False: the rank waits for its oldest send.
  bool collect_oldest_send(int32_t rank, SimTime now);
  void record_transfer(int32_t rank, const Action& action, SimTime begin, SimTime end, int32_t peer,
                       int64_t bytes);

  SimulationState& state_;
  std::vector<Transfer> transfers_;
  std::vector<int32_t> first_;  // by rank: of the transfers that it receives
  // By rank; few: its neighbours. Flows hold their paths.
  std::vector<std::deque<Channel>> channels_;
};

}  // namespace trireme
