// Flows: what is on the links at a time, and when it has arrived; see iteration.h for the model.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/comm/transfer.h"

namespace trireme {

inline constexpr SimTime kNever = std::numeric_limits<SimTime>::max();

struct Flow {
  int64_t id = 0;  // the caller's
  UnitCost cost;
  const std::vector<int32_t>* path = nullptr;  // outlives the flow
  int32_t lane = 0;                            // flows of a lane take the links in turn ...
  bool in_turn = true;                         // ... or all at once; the same for all of a lane
  bool is_urgent = false;  // leaves nothing of its first link to flows that are not
};

class Flows {
 public:
  explicit Flows(int32_t num_links) : num_on_link_(static_cast<size_t>(num_links)) {}

  void start(const Flow& flow, SimTime now);
  // When something changes if nothing else starts; kNever: nothing is on its way.
  [[nodiscard]] SimTime next_event() const;
  // The ids of those that have arrived, as they started. REQUIRES: now <= next_event().
  std::vector<int64_t> advance(SimTime now);

 private:
  struct Running {
    Flow flow;
    int64_t sequence = 0;
    SimTime startup_end = 0;
    int64_t left = 0;   // of its time on the links, in parts of a nanosecond
    int64_t share = 0;  // it has a share-th of them; 0: none
  };
  // By lane, as they started. Where they take turns, all but the first have no share.
  using Lanes = std::map<int32_t, std::deque<Running>>;

  void settle(SimTime now);
  void reshare(SimTime now);

  SimTime last_ = 0;
  int64_t num_started_ = 0;
  Lanes lanes_;
  std::vector<int64_t> num_on_link_;  // scratch
};

}  // namespace trireme
