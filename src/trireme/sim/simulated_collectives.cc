#include "trireme/sim/simulated_collectives.h"

#include <algorithm>
#include <iterator>

namespace trireme {

using enum ActionKind;

// A number for each communicator, as the executor joins them.
int32_t SimulatedCollectives::communicator_of(int32_t rank, const Action& action) const {
  const Schedule& schedule = state_.schedule;
  const auto replicas = static_cast<int32_t>(schedule.num_micro_batches.size());
  if (action.kind == kScalars) return 0;
  if (action.kind == kAllReduce) return 1 + stage_of(schedule, rank);
  if (action.kind == kRowExchange) return 1 + schedule.num_stages + stage_of(schedule, rank);
  return 1 + 2 * schedule.num_stages + action.index * replicas + replica_of(schedule, rank);
}

int64_t SimulatedCollectives::bytes_of(int32_t rank, const Action& action) const {
  if (action.kind == kScalars) return state_.costs.scalar_bytes;
  if (action.kind == kRowExchange) {
    const size_t replicas = state_.schedule.num_micro_batches.size();
    return row_exchange_cost(costs_of(state_, rank).rows, action.index,
                             static_cast<int32_t>(replicas));
  }
  return action.kind == kAllReduce ? costs_of(state_, rank).bucket_bytes[action.index]
                                   : state_.costs.tied_bytes[action.index];
}

bool SimulatedCollectives::are_there_for(int32_t rank, const Action* action, SimTime now) {
  for (const IssuedCollective& issued : state_.ranks[rank].collectives) {
    if (action != nullptr && !waits_for(*action, issued.action)) continue;
    state_.ranks[rank].waits_for_collective = issued.action;
    begin_wait(state_, rank, Waiting::kCollective, now);
    return false;
  }
  return true;
}

void SimulatedCollectives::issue(int32_t rank, const Action& action, SimTime now) {
  const int32_t id = communicator_of(rank, action);
  if (static_cast<size_t>(id) >= communicators_.size()) {
    communicators_.resize(static_cast<size_t>(id) + 1);
  }
  Communicator& communicator = communicators_[id];
  if (communicator.members.empty()) {
    communicator.members = members(state_.schedule, rank, action);
    if (communicator.members.size() > 1) {
      communicator.phases =
          collective_phases(state_.options.collectives, communicator.members, state_.links);
    }
  }
  state_.ranks[rank].collectives.push_back({action, now});
  auto found = std::ranges::find(communicator.collectives, action, &Collective::action);
  if (found == communicator.collectives.end()) {
    communicator.collectives.push_back({.action = action, .bytes = bytes_of(rank, action)});
    found = std::prev(communicator.collectives.end());
  }
  ++found->num_come;
  if (found == communicator.collectives.begin()) begin_if_complete(id, now);
}

void SimulatedCollectives::begin_if_complete(int32_t id, SimTime now) {
  const Communicator& communicator = communicators_[id];
  if (communicator.collectives.front().num_come < communicator.members.size()) return;
  begin_latency(id, now);
}

void SimulatedCollectives::begin_latency(int32_t id, SimTime now) {
  const Communicator& communicator = communicators_[id];
  const size_t phase = communicator.collectives.front().phase;
  if (phase == communicator.phases.size()) return end_collective(id, now);
  const SimTime latency = state_.options.has_free_network ? 0 : communicator.phases[phase].latency;
  state_.agenda.add({now + latency, Agenda::Kind::kCollective, id});
}

void SimulatedCollectives::begin_phase(int32_t id, SimTime now) {
  const Communicator& communicator = communicators_[id];
  const Collective& collective = communicator.collectives.front();
  const std::vector<LinkUse>& path = communicator.phases[collective.phase].path;
  if (collective.bytes == 0 || path.empty() || state_.options.has_free_network) {
    return end_phase(id, now);
  }
  state_.agenda.start_flow(now, path, collective.bytes,
                           {.kind = Agenda::Kind::kCollectivePhase, .id = id}, /*priority=*/0);
}

void SimulatedCollectives::end_phase(int32_t id, SimTime now) {
  ++communicators_[id].collectives.front().phase;
  begin_latency(id, now);
}

void SimulatedCollectives::end_collective(int32_t id, SimTime now) {
  Communicator& communicator = communicators_[id];
  const Collective ended = communicator.collectives.front();
  communicator.collectives.pop_front();
  for (const int32_t member : communicator.members) {
    Rank& rank = state_.ranks[member];
    const auto issued =
        std::ranges::find(rank.collectives, ended.action, &IssuedCollective::action);
    record(state_, {.rank = member,
                    .event_class = EventClass::kCollective,
                    .action = ended.action,
                    .begin = issued->begin,
                    .end = now,
                    .bytes = ended.bytes});
    rank.collectives.erase(issued);
    if (rank.waiting != Waiting::kCollective || rank.waits_for_collective != ended.action) continue;
    end_wait(state_, member, ended.action, -1, now);
  }
  if (!communicator.collectives.empty()) begin_if_complete(id, now);
}

}  // namespace trireme
