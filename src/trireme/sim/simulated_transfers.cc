#include "trireme/sim/simulated_transfers.h"

#include <algorithm>

namespace trireme {

using enum ActionKind;

SimulatedTransfers::SimulatedTransfers(SimulationState& state)
    : state_(state), channels_(state.ranks.size()) {
  size_t count = 0;
  for (int32_t r = 0; r < num_ranks(state.schedule); ++r) {
    first_.push_back(static_cast<int32_t>(count));
    count += 2 * static_cast<size_t>(state.schedule.num_steps) *
             static_cast<size_t>(num_micro_batches(state, r) * state.schedule.num_chunks);
  }
  transfers_.resize(count);
}

// The transfer that the receiver's action waits for.
int32_t SimulatedTransfers::transfer_of(int32_t receiver, const Action& receive) const {
  const int32_t direction = receive.kind == kReceiveActivation ? 0 : 1;
  const int32_t slot =
      ((receive.batch * 2 + direction) * state_.schedule.num_chunks + receive.chunk) *
          num_micro_batches(state_, receiver) +
      receive.index;
  return first_[receiver] + slot;
}

int32_t SimulatedTransfers::channel_to(int32_t sender, int32_t receiver) {
  std::deque<Channel>& channels = channels_[sender];
  const auto found = std::ranges::find(channels, receiver, &Channel::receiver);
  if (found != channels.end()) return static_cast<int32_t>(found - channels.begin());
  Channel& channel = channels.emplace_back();
  channel.receiver = receiver;
  double latency = 0;
  for (const int32_t link : state_.links.path(sender, receiver)) {
    channel.path.push_back({link, 1});
    const LinkSpeed& speed = state_.links.links()[link].speed;
    latency += speed.latency;
    channel.cpu_per_byte = std::max(channel.cpu_per_byte, speed.cpu_per_byte);
  }
  if (state_.options.has_free_network) {
    latency = 0;
    channel.cpu_per_byte = 0;
  }
  channel.latency = to_sim_time(latency);
  return static_cast<int32_t>(channels.size()) - 1;
}

SimulatedTransfers::Channel& SimulatedTransfers::channel_of(const Transfer& transfer) {
  return channels_[transfer.sender][transfer.channel];
}

SimTime SimulatedTransfers::processor_time(const Transfer& transfer) {
  return to_sim_time(channel_of(transfer).cpu_per_byte * static_cast<double>(transfer.bytes));
}

bool SimulatedTransfers::send(int32_t r, const Action& action, SimTime now) {
  Rank& rank = state_.ranks[r];
  const Counterpart other = other_side(state_.schedule, r, action);
  const int32_t id = transfer_of(other.rank, other.action);
  Transfer& transfer = transfers_[id];
  if (!rank.has_paid) {
    transfer.sender = r;
    transfer.receiver = other.rank;
    transfer.receive = other.action;
    transfer.channel = channel_to(r, other.rank);
    transfer.bytes =
        state_.passes.received_bytes(stage_of(state_.schedule, other.rank), other.action);
    rank.has_paid = true;
    if (const SimTime paid = processor_time(transfer); paid > 0) {
      record(state_, {.rank = r,
                      .event_class = EventClass::kWait,
                      .action = action,
                      .begin = now,
                      .end = now + paid,
                      .peer = other.rank});
      state_.agenda.add({now + paid, Agenda::Kind::kRank, r});
      return false;
    }
  }
  rank.has_paid = false;
  ++rank.at;
  transfer.send_posted = now;
  rank.sends.push_back(id);
  begin_if_ready(id, now);
  return rank.sends.size() <= kMaxSendsInFlight || collect_oldest_send(r, now);
}

bool SimulatedTransfers::receive(int32_t r, const Action& action, SimTime now) {
  Rank& rank = state_.ranks[r];
  post_receives(r, now, state_.schedule.look_ahead + 1);
  const int32_t id = transfer_of(r, action);
  const Transfer& transfer = transfers_[id];
  if (transfer.done == kNever) {
    rank.waits_for = id;
    begin_wait(state_, r, Waiting::kReceive, now);
    return false;
  }
  --rank.num_posted;
  ++rank.at;
  const SimTime paid = processor_time(transfer);
  if (paid == 0) return true;
  record(state_, {.rank = r,
                  .event_class = EventClass::kWait,
                  .action = action,
                  .begin = now,
                  .end = now + paid,
                  .peer = transfer.sender});
  state_.agenda.add({now + paid, Agenda::Kind::kRank, r});
  return false;
}

void SimulatedTransfers::post_receives(int32_t r, SimTime now, int32_t count) {
  Rank& rank = state_.ranks[r];
  const std::vector<Action>& actions = state_.schedule.ranks[r];
  for (; rank.num_posted < count && rank.next_receive < actions.size(); ++rank.next_receive) {
    const Action& action = actions[rank.next_receive];
    if (!is_receive(action.kind)) continue;
    ++rank.num_posted;
    const int32_t id = transfer_of(r, action);
    transfers_[id].receive_posted = now;
    rank.memory += state_.passes.received_bytes(stage_of(state_.schedule, r), action);
    rank.peak = std::max(rank.peak, rank.memory);
    begin_if_ready(id, now);
  }
}

bool SimulatedTransfers::collect_sends(int32_t r, SimTime now) {
  while (!state_.ranks[r].sends.empty()) {
    if (!collect_oldest_send(r, now)) return false;
  }
  return true;
}

// The executor holds what it sends until it looks whether it has gone.
bool SimulatedTransfers::collect_oldest_send(int32_t r, SimTime now) {
  Rank& rank = state_.ranks[r];
  const int32_t id = rank.sends.front();
  if (transfers_[id].done == kNever) {
    rank.waits_for = id;
    begin_wait(state_, r, Waiting::kSend, now);
    return false;
  }
  rank.memory -= transfers_[id].bytes;
  rank.sends.pop_front();
  return true;
}

void SimulatedTransfers::begin_if_ready(int32_t id, SimTime now) {
  Transfer& transfer = transfers_[id];
  const bool may_begin =
      transfer.send_posted != kNever &&
      (state_.options.transfers == TransferMode::kEager || transfer.receive_posted != kNever);
  if (!may_begin || transfer.has_begun) return;
  transfer.has_begun = true;
  const SimTime latency = channel_of(transfer).latency;
  if (latency > 0) return state_.agenda.add({now + latency, Agenda::Kind::kTransfer, id});
  begin(id, now);
}

// Its latency has passed: its bytes come after those of the transfers before it.
void SimulatedTransfers::begin(int32_t id, SimTime now) {
  const int64_t bytes = transfers_[id].bytes;
  Channel& channel = channel_of(transfers_[id]);
  if (channel.is_busy) return channel.arriving.push_back(id);
  channel.is_busy = true;
  if (bytes == 0 || channel.path.empty() || state_.options.has_free_network) return end(id, now);
  const bool goes_first = !state_.schedule.communication.has_one_urgency &&
                          state_.options.sharing == LinkSharing::kTransfersFirst;
  state_.agenda.start_flow(now, channel.path, bytes, {.kind = Agenda::Kind::kTransferEnd, .id = id},
                           goes_first ? 1 : 0);
}

void SimulatedTransfers::record_transfer(int32_t rank, const Action& action, SimTime begin,
                                         SimTime end, int32_t peer, int64_t bytes) {
  record(state_, {.rank = rank,
                  .event_class = EventClass::kTransfer,
                  .action = action,
                  .begin = begin,
                  .end = end,
                  .peer = peer,
                  .bytes = bytes});
}

void SimulatedTransfers::end(int32_t id, SimTime now) {
  Transfer& transfer = transfers_[id];
  transfer.done = now;
  const Counterpart sent = other_side(state_.schedule, transfer.receiver, transfer.receive);
  record_transfer(transfer.sender, sent.action, transfer.send_posted, now, transfer.receiver,
                  transfer.bytes);
  if (transfer.receive_posted != kNever) {
    record_transfer(transfer.receiver, transfer.receive, transfer.receive_posted, now,
                    transfer.sender, transfer.bytes);
  }
  Channel& channel = channel_of(transfer);
  channel.is_busy = false;
  if (!channel.arriving.empty()) {
    const int32_t next = channel.arriving.front();
    channel.arriving.pop_front();
    begin(next, now);
  }
  for (const int32_t r : {transfer.receiver, transfer.sender}) {
    const Rank& rank = state_.ranks[r];
    if (rank.waiting == Waiting::kNot || rank.waits_for != id) continue;
    if (rank.waiting == Waiting::kReceive) {
      end_wait(state_, r, transfer.receive, transfer.sender, now);
    } else {
      end_wait(state_, r, sent.action, transfer.receiver, now);
      collect_oldest_send(r, now);
    }
  }
}

}  // namespace trireme
