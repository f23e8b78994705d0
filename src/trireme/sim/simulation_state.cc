#include "trireme/sim/simulation_state.h"

namespace trireme {

void record(SimulationState& state, TimelineEvent event) {
  if (!state.options.records_events) return;
  if (event.event_class == EventClass::kWait && event.begin == event.end) return;
  // The batches of a run of several steps become the steps of its timeline.
  event.step = event.action.batch;
  event.action.batch = 0;
  state.timeline.events.push_back(event);
}

void begin_wait(SimulationState& state, int32_t rank, Waiting waiting, SimTime now) {
  Rank& waiting_rank = state.ranks[rank];
  waiting_rank.waiting = waiting;
  waiting_rank.wait_begin = now;
}

void end_wait(SimulationState& state, int32_t rank, const Action& action, int32_t peer,
              SimTime now) {
  Rank& waiting_rank = state.ranks[rank];
  record(state, {.rank = rank,
                 .event_class = EventClass::kWait,
                 .action = action,
                 .begin = waiting_rank.wait_begin,
                 .end = now,
                 .peer = peer});
  waiting_rank.waiting = Waiting::kNot;
  waiting_rank.waits_for = -1;
  state.agenda.add({now, Agenda::Kind::kRank, rank});
}

}  // namespace trireme
