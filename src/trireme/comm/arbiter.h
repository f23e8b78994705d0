// Arbiter: which of the transfers that a rank has posted may start now.
//
// The schedule has decided the order; an arbiter only delays. It holds a transfer while a more
// urgent one needs a link of its path, and lets it go when that one is over, or when the transfer
// has been held for as long as the bound allows. Three rules make this safe:
//
//   * In a communicator transfers start in the order in which they were posted, so the members of a
//     collective agree without talking.
//   * It yields only to a transfer that can move: one that is next in its communicator or on its
//     way, and whose receive is posted. Waiting for a peer that itself waits is ruled out.
//   * Each transfer is held for the bound at most, counted from when it was next in its
//     communicator. So every transfer starts, whatever else is posted.
//
//   posted --(next in its communicator)--> held or free --(started)--> in flight --(done)-->
//
// It is driven by events and has no clock and no thread: by virtual time in the simulator, by real
// time in a runtime, which calls it under its own lock. One arbiter sees the transfers of one rank,
// or of all ranks of a host whose links they share.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "trireme/base/sim_time.h"

namespace trireme {

struct PostedTransfer {
  int64_t id = 0;             // the caller's, used once
  int32_t communicator = 0;   // whose order is kept
  int32_t urgency = 0;        // the smallest first
  std::vector<int32_t> path;  // links
  bool has_receive = false;   // its receive is posted
};

class Arbiter {
 public:
  explicit Arbiter(SimTime most_hold) : most_hold_(most_hold) {}

  // Times never go back. REQUIRES: a new id.
  void on_posted(PostedTransfer transfer, SimTime now);
  // The receive of a posted transfer has been posted since.
  void on_receive_posted(int64_t id);
  // REQUIRES: it is the next of its communicator.
  void on_started(int64_t id, SimTime now);
  // REQUIRES: it has started.
  void on_done(int64_t id);

  // Transfers that may start, at most one of each communicator, in the order in which they were
  // posted. They stay so when all of them are started.
  [[nodiscard]] std::vector<int64_t> may_start(SimTime now) const;
  // When may_start() is to be asked again if nothing else happens; nullopt: nothing is held.
  [[nodiscard]] std::optional<SimTime> next_tick(SimTime now) const;
  [[nodiscard]] bool is_idle() const { return transfers_.empty(); }

 private:
  struct State {
    PostedTransfer transfer;
    int64_t sequence = 0;
    bool is_next = false;  // or has started
    bool has_started = false;
    SimTime next_since = 0;
  };
  [[nodiscard]] bool is_held(const State& state, SimTime now) const;

  SimTime most_hold_;
  int64_t num_posted_ = 0;
  std::map<int64_t, State> transfers_;                  // by id, until they are done
  std::map<int32_t, std::deque<int64_t>> not_started_;  // by communicator
};

}  // namespace trireme
