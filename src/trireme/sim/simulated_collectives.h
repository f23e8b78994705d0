// SimulatedCollectives: sums and scalars, from their issue by each member to their end
// (simulate.h).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/sim/collective_phases.h"
#include "trireme/sim/simulation_state.h"

namespace trireme {

class SimulatedCollectives {
 public:
  // `state` outlives it.
  explicit SimulatedCollectives(SimulationState& state) : state_(state) {}

  void issue(int32_t rank, const Action& action, SimTime now);
  // False: the rank waits for a collective that its action needs; without an action for any.
  bool are_there_for(int32_t rank, const Action* action, SimTime now);

  // What the agenda says of a communicator.
  void begin_phase(int32_t communicator, SimTime now);
  void end_phase(int32_t communicator, SimTime now);

 private:
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

  [[nodiscard]] int32_t communicator_of(int32_t rank, const Action& action) const;
  [[nodiscard]] int64_t bytes_of(int32_t rank, const Action& action) const;
  void begin_if_complete(int32_t id, SimTime now);
  void begin_latency(int32_t id, SimTime now);
  void end_collective(int32_t id, SimTime now);

  SimulationState& state_;
  std::deque<Communicator> communicators_;  // flows hold their paths
};

}  // namespace trireme
