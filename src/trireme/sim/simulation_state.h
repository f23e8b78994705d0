// What the parts of a simulation share: what is given, what happens next, the ranks, and the
// timeline that is written.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/cluster/link_graph.h"
#include "trireme/cost/step_costs.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/schedule.h"
#include "trireme/sim/agenda.h"
#include "trireme/sim/pass_table.h"
#include "trireme/sim/rank_state.h"
#include "trireme/sim/simulate.h"
#include "trireme/trace/timeline.h"

namespace trireme {

struct SimulationState {
  const Schedule& schedule;
  const StepCosts& costs;
  const SimOptions& options;
  PassTable passes;
  LinkGraph links;
  Agenda agenda;
  std::vector<Rank> ranks;
  Timeline timeline = {};
};

[[nodiscard]] inline const StageCosts& costs_of(const SimulationState& state, int32_t rank) {
  return state.costs.stages[stage_of(state.schedule, rank)];
}

[[nodiscard]] inline int32_t num_micro_batches(const SimulationState& state, int32_t rank) {
  return state.schedule.num_micro_batches[replica_of(state.schedule, rank)];
}

// An event of the timeline, if it is to have any. A wait that takes no time is none.
void record(SimulationState& state, TimelineEvent event);

// The rank waits from now on.
void begin_wait(SimulationState& state, int32_t rank, Waiting waiting, SimTime now);
// It waited for this action, and goes on.
void end_wait(SimulationState& state, int32_t rank, const Action& action, int32_t peer,
              SimTime now);

}  // namespace trireme
