#include "trireme/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <queue>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/cluster/link_graph.h"
#include "trireme/schedule/peers.h"
#include "trireme/sim/collective_phases.h"
#include "trireme/sim/fluid_network.h"

namespace trireme {
namespace {

using enum ActionKind;

Status check_costs(const Schedule& schedule, const StepCosts& costs) {
  const auto num_stages = static_cast<size_t>(schedule.num_stages);
  if (costs.stages.size() != num_stages) {
    return Error{fmt::format("there are costs of {} stages, but the schedule has {}",
                             costs.stages.size(), num_stages)};
  }
  for (size_t s = 0; s < num_stages; ++s) {
    if (costs.stages[s].chunks.size() != static_cast<size_t>(schedule.num_chunks)) {
      return Error{fmt::format("stage {} has costs of {} chunks, but the schedule has {}", s,
                               costs.stages[s].chunks.size(), schedule.num_chunks)};
    }
    if (costs.stages[s].bucket_bytes.size() < static_cast<size_t>(schedule.num_buckets[s])) {
      return Error{fmt::format("stage {} has costs of {} buckets, but the schedule has {}", s,
                               costs.stages[s].bucket_bytes.size(), schedule.num_buckets[s])};
    }
  }
  if (costs.tied_bytes.size() < schedule.tied_groups.size()) {
    return Error{fmt::format("there are costs of {} tied groups, but the schedule has {}",
                             costs.tied_bytes.size(), schedule.tied_groups.size())};
  }
  return Status();
}

// All messages of a sender to a receiver, one after the other.
struct Channel {
  int32_t receiver = 0;
  std::vector<LinkUse> path;
  SimTime latency = 0;
  double cpu_per_byte = 0;
  std::deque<int32_t> ready;  // transfers that may begin
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

struct Communicator {
  std::vector<int32_t> members;
  std::vector<CollectivePhase> phases;
};

// One that is under way; of a communicator there is one at a time, since members wait for it.
struct Collective {
  const Communicator* communicator = nullptr;
  double bytes = 0;
  size_t num_come = 0;
  size_t phase = 0;
};

enum class Waiting : uint8_t { kNot, kReceive, kSend, kCollective };

struct Rank {
  size_t at = 0;              // the next action
  size_t next_receive = 0;    // the next action that could be a receive to post
  int32_t num_posted = 0;     // receives that are posted and not yet waited for
  std::deque<int32_t> sends;  // transfers that are not known to be over
  Waiting waiting = Waiting::kNot;
  int32_t waits_for = -1;  // a transfer
  SimTime wait_begin = 0;
  bool has_paid = false;  // the processor's share in the send at hand
  SimTime compute = 0;
  SimTime end = 0;
  int64_t memory = 0;
  int64_t peak = 0;
  std::vector<Channel> channels;  // few: its neighbours
  size_t first_transfer = 0;      // of those that it receives
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, const StepCosts& costs, const Cluster& cluster,
            const SimOptions& options)
      : schedule_(schedule),
        costs_(costs),
        options_(options),
        links_(cluster),
        network_(capacities(links_)),
        ranks_(schedule.ranks.size()) {}

  [[nodiscard]] int32_t num_devices() const { return links_.num_devices(); }

  Simulation run() {
    size_t num_transfers = 0;
    for (int32_t r = 0; r < num_ranks(schedule_); ++r) {
      ranks_[r].first_transfer = num_transfers;
      num_transfers += 2 * static_cast<size_t>(num_micro_batches(r) * schedule_.num_chunks);
      ranks_[r].memory = ranks_[r].peak = costs(r).static_bytes;
    }
    transfers_.resize(num_transfers);
    for (int32_t r = 0; r < num_ranks(schedule_); ++r) {
      post_receives(r, 0, schedule_.look_ahead);
      push(0, Event::Kind::kRank, r);
    }
    while (true) {
      const auto flow = network_.next();
      if (flow.has_value() && (events_.empty() || flow->time <= events_.top().time)) {
        end_flow(network_.pop());
      } else if (!events_.empty()) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      } else {
        break;
      }
      ++num_events_;
    }
    return result();
  }

 private:
  struct Event {
    enum class Kind : uint8_t { kRank, kTransfer, kCollective };
    SimTime time = 0;
    int64_t order = 0;
    Kind kind = Kind::kRank;
    int32_t id = 0;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  // What a flow is the bytes of.
  struct FlowOwner {
    Event::Kind kind = Event::Kind::kTransfer;
    int32_t id = 0;
  };

  static std::vector<double> capacities(const LinkGraph& links) {
    std::vector<double> capacities;
    for (const LinkGraph::Link& link : links.links()) capacities.push_back(link.speed.bandwidth);
    return capacities;
  }

  [[nodiscard]] const StageCosts& costs(int32_t rank) const {
    return costs_.stages[stage_of(schedule_, rank)];
  }
  [[nodiscard]] const ChunkCosts& costs(int32_t rank, int32_t chunk) const {
    return costs(rank).chunks[chunk];
  }
  [[nodiscard]] int32_t num_micro_batches(int32_t rank) const {
    return schedule_.num_micro_batches[replica_of(schedule_, rank)];
  }

  void push(SimTime time, Event::Kind kind, int32_t id) {
    events_.push({.time = time, .order = order_++, .kind = kind, .id = id});
  }

  void record(int32_t rank, EventClass event_class, const Action& action, SimTime begin,
              SimTime end, int32_t peer = -1, int64_t bytes = 0) {
    if (!options_.records_events) return;
    if (event_class == EventClass::kWait && begin == end) return;
    timeline_.events.push_back({.rank = rank,
                                .event_class = event_class,
                                .action = action,
                                .begin = begin,
                                .end = end,
                                .step = 0,
                                .peer = peer,
                                .bytes = bytes});
  }

  void hold(Rank& rank, int64_t bytes) {
    rank.memory += bytes;
    rank.peak = std::max(rank.peak, rank.memory);
  }

  // --- what a rank does ------------------------------------------------------------------------

  void handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::kRank:
        return advance(event.id, event.time);
      case Event::Kind::kTransfer:
        return begin_transfer(event.id, event.time);
      case Event::Kind::kCollective:
        return begin_phase(event.id, event.time);
    }
  }

  // Runs the rank's list from its next action until it computes or waits.
  void advance(int32_t r, SimTime now) {
    Rank& rank = ranks_[r];
    const std::vector<Action>& actions = schedule_.ranks[r];
    while (rank.at < actions.size()) {
      const Action& action = actions[rank.at];
      if (is_compute(action.kind)) {
        compute(r, action, now);
        return;
      }
      const bool goes_on = is_send(action.kind)      ? send(r, action, now)
                           : is_receive(action.kind) ? receive(r, action, now)
                                                     : come(r, action, now);
      if (!goes_on) return;
    }
    while (!rank.sends.empty()) {
      if (transfers_[rank.sends.front()].done == kNever) {
        return wait(r, Waiting::kSend, rank.sends.front(), now);
      }
      rank.sends.pop_front();
    }
    rank.end = now;
  }

  void wait(int32_t r, Waiting waiting, int32_t transfer, SimTime now) {
    ranks_[r].waiting = waiting;
    ranks_[r].waits_for = transfer;
    ranks_[r].wait_begin = now;
  }

  void compute(int32_t r, const Action& action, SimTime now) {
    Rank& rank = ranks_[r];
    const SimTime duration = jittered(duration_of(r, action), r, rank.at);
    const EventClass event_class = event_class_of(action.kind);
    record(r, event_class, action, now, now + duration);
    rank.compute += duration;
    account(r, action);
    ++rank.at;
    push(now + duration, Event::Kind::kRank, r);
  }

  [[nodiscard]] SimTime duration_of(int32_t r, const Action& action) const {
    if (action.kind == kUpdate) return costs(r).update;
    const ChunkCosts& chunk = costs(r, action.chunk);
    switch (action.kind) {
      case kBackward:
        return chunk.backward;
      case kInputGradient:
        return chunk.input_gradient;
      case kWeightGradient:
        return chunk.weight_gradient;
      case kRecompute:
        return chunk.recompute;
      default:
        return chunk.forward;
    }
  }

  [[nodiscard]] SimTime jittered(SimTime duration, int32_t r, size_t at) const {
    if (options_.jitter == 0) return duration;
    // Box and Muller.
    const uint64_t bits = mix_bits(mix_bits(options_.seed, static_cast<uint64_t>(r)), at);
    const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;
    const double v = static_cast<double>(bits & 0xffffffffU) * 0x1p-32;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    return std::llround(static_cast<double>(duration) * std::exp(options_.jitter * normal));
  }

  // Memory: what the pass holds while it runs, and what it leaves behind.
  void account(int32_t r, const Action& action) {
    if (action.kind == kUpdate) return;
    Rank& rank = ranks_[r];
    const ChunkCosts& chunk = costs(r, action.chunk);
    const auto leave = [&](int64_t during, int64_t after) {
      rank.peak =
          std::max(rank.peak, rank.memory + std::max(during, after) + chunk.transient_bytes);
      rank.memory += after;
    };
    // What was received is part of what is kept.
    const bool receives = !is_first_virtual_stage(schedule_, r, action.chunk);
    const bool is_received =
        receives &&
        counterpart(schedule_, r, {kReceiveActivation, action.index, action.chunk}).has_value();
    const int64_t received = is_received ? input_bytes(r, action.chunk) : 0;
    const bool sends =
        counterpart(schedule_, r, {kSendActivation, action.index, action.chunk}).has_value();
    const int64_t sent = sends ? chunk.activation_bytes : 0;
    const bool got_gradient =
        counterpart(schedule_, r, {kReceiveGradient, action.index, action.chunk}).has_value();
    const int64_t gradient = got_gradient ? output_gradient_bytes(r, action.chunk) : 0;
    const int64_t sent_gradient = is_received ? chunk.gradient_bytes : 0;
    switch (action.kind) {
      case kForward:
        return schedule_.is_training ? leave(0, chunk.kept_bytes - received + sent)
                                     : leave(chunk.kept_bytes, sent - received);
      case kForwardKeepingInput:
        return leave(chunk.kept_bytes - received, chunk.kept_input_bytes - received + sent);
      case kRecompute:
        return leave(0, chunk.kept_bytes - chunk.kept_input_bytes);
      case kBackward:
        return leave(sent_gradient, sent_gradient - chunk.kept_bytes - gradient);
      case kInputGradient:
        return leave(sent_gradient + chunk.deferred_bytes,
                     sent_gradient + chunk.deferred_bytes - chunk.kept_bytes - gradient);
      case kWeightGradient:
        return leave(0, -chunk.deferred_bytes);
      default:
        return;
    }
  }

  // Of what a virtual stage gets from the one before, and from the one after.
  [[nodiscard]] int64_t input_bytes(int32_t r, int32_t chunk) const {
    const auto before = place_of(schedule_, r, virtual_stage_of(schedule_, r, chunk) - 1);
    return before.has_value() ? costs(before->rank, before->chunk).activation_bytes : 0;
  }
  [[nodiscard]] int64_t output_gradient_bytes(int32_t r, int32_t chunk) const {
    const auto after = place_of(schedule_, r, virtual_stage_of(schedule_, r, chunk) + 1);
    return after.has_value() ? costs(after->rank, after->chunk).gradient_bytes : 0;
  }

  // --- transfers -------------------------------------------------------------------------------

  // The transfer that the receiver's action waits for.
  [[nodiscard]] int32_t transfer_of(int32_t receiver, const Action& receive) const {
    const int32_t direction = receive.kind == kReceiveActivation ? 0 : 1;
    const int32_t slot =
        (direction * schedule_.num_chunks + receive.chunk) * num_micro_batches(receiver) +
        receive.index;
    return static_cast<int32_t>(ranks_[receiver].first_transfer) + slot;
  }

  int32_t channel_to(int32_t sender, int32_t receiver) {
    std::vector<Channel>& channels = ranks_[sender].channels;
    const auto found = std::ranges::find(channels, receiver, &Channel::receiver);
    if (found != channels.end()) return static_cast<int32_t>(found - channels.begin());
    Channel& channel = channels.emplace_back();
    channel.receiver = receiver;
    double latency = 0;
    for (const int32_t link : links_.path(sender, receiver)) {
      channel.path.push_back({link, 1});
      const LinkSpeed& speed = links_.links()[link].speed;
      latency += speed.latency;
      channel.cpu_per_byte = std::max(channel.cpu_per_byte, speed.cpu_per_byte);
    }
    channel.latency = to_sim_time(latency);
    return static_cast<int32_t>(channels.size()) - 1;
  }

  [[nodiscard]] SimTime processor_time(const Transfer& transfer) const {
    const Channel& channel = ranks_[transfer.sender].channels[transfer.channel];
    return to_sim_time(channel.cpu_per_byte * static_cast<double>(transfer.bytes));
  }

  // False: the rank goes on later.
  bool send(int32_t r, const Action& action, SimTime now) {
    Rank& rank = ranks_[r];
    const Counterpart other = other_side(schedule_, r, action);
    const int32_t id = transfer_of(other.rank, other.action);
    Transfer& transfer = transfers_[id];
    if (!rank.has_paid) {
      transfer.sender = r;
      transfer.receiver = other.rank;
      transfer.receive = other.action;
      transfer.channel = channel_to(r, other.rank);
      const ChunkCosts& chunk = costs(r, action.chunk);
      transfer.bytes =
          action.kind == kSendActivation ? chunk.activation_bytes : chunk.gradient_bytes;
      rank.has_paid = true;
      if (const SimTime paid = processor_time(transfer); paid > 0) {
        record(r, EventClass::kWait, action, now, now + paid, other.rank);
        push(now + paid, Event::Kind::kRank, r);
        return false;
      }
    }
    rank.has_paid = false;
    ++rank.at;
    transfer.send_posted = now;
    rank.sends.push_back(id);
    begin_if_ready(id, now);
    if (rank.sends.size() <= kMaxSendsInFlight) return true;
    if (transfers_[rank.sends.front()].done == kNever) {
      wait(r, Waiting::kSend, rank.sends.front(), now);
      return false;
    }
    rank.sends.pop_front();
    return true;
  }

  bool receive(int32_t r, const Action& action, SimTime now) {
    Rank& rank = ranks_[r];
    post_receives(r, now, schedule_.look_ahead + 1);
    const int32_t id = transfer_of(r, action);
    if (transfers_[id].done == kNever) {
      wait(r, Waiting::kReceive, id, now);
      return false;
    }
    --rank.num_posted;
    ++rank.at;
    const SimTime paid = processor_time(transfers_[id]);
    if (paid == 0) return true;
    record(r, EventClass::kWait, action, now, now + paid, transfers_[id].sender);
    push(now + paid, Event::Kind::kRank, r);
    return false;
  }

  // Until `count` are posted and not yet waited for.
  void post_receives(int32_t r, SimTime now, int32_t count) {
    Rank& rank = ranks_[r];
    const std::vector<Action>& actions = schedule_.ranks[r];
    for (; rank.num_posted < count && rank.next_receive < actions.size(); ++rank.next_receive) {
      const Action& action = actions[rank.next_receive];
      if (!is_receive(action.kind)) continue;
      ++rank.num_posted;
      const int32_t id = transfer_of(r, action);
      transfers_[id].receive_posted = now;
      hold(rank, action.kind == kReceiveActivation ? input_bytes(r, action.chunk)
                                                   : output_gradient_bytes(r, action.chunk));
      begin_if_ready(id, now);
    }
  }

  void begin_if_ready(int32_t id, SimTime now) {
    Transfer& transfer = transfers_[id];
    const bool may_begin =
        transfer.send_posted != kNever &&
        (options_.transfers == TransferMode::kEager || transfer.receive_posted != kNever);
    if (!may_begin || transfer.has_begun) return;
    transfer.has_begun = true;
    Channel& channel = ranks_[transfer.sender].channels[transfer.channel];
    channel.ready.push_back(id);
    if (!channel.is_busy) begin_next(channel, now);
  }

  void begin_next(Channel& channel, SimTime now) {
    channel.is_busy = !channel.ready.empty();
    if (!channel.is_busy) return;
    push(now + channel.latency, Event::Kind::kTransfer, channel.ready.front());
    channel.ready.pop_front();
  }

  void begin_transfer(int32_t id, SimTime now) {
    const Transfer& transfer = transfers_[id];
    const Channel& channel = ranks_[transfer.sender].channels[transfer.channel];
    if (transfer.bytes == 0 || channel.path.empty()) return end_transfer(id, now);
    start_flow(now, channel.path, static_cast<double>(transfer.bytes),
               {Event::Kind::kTransfer, id});
  }

  void end_transfer(int32_t id, SimTime now) {
    Transfer& transfer = transfers_[id];
    transfer.done = now;
    const Counterpart sent = other_side(schedule_, transfer.receiver, transfer.receive);
    record(transfer.sender, EventClass::kTransfer, sent.action, transfer.send_posted, now,
           transfer.receiver, transfer.bytes);
    if (transfer.receive_posted != kNever) {
      record(transfer.receiver, EventClass::kTransfer, transfer.receive, transfer.receive_posted,
             now, transfer.sender, transfer.bytes);
    }
    ranks_[transfer.sender].memory -= transfer.bytes;
    begin_next(ranks_[transfer.sender].channels[transfer.channel], now);
    for (const int32_t r : {transfer.receiver, transfer.sender}) {
      Rank& rank = ranks_[r];
      if (rank.waiting == Waiting::kNot || rank.waits_for != id) continue;
      const bool receives = rank.waiting == Waiting::kReceive;
      record(r, EventClass::kWait, receives ? transfer.receive : sent.action, rank.wait_begin, now,
             receives ? transfer.sender : transfer.receiver);
      rank.waiting = Waiting::kNot;
      rank.waits_for = -1;
      if (!receives) rank.sends.pop_front();
      push(now, Event::Kind::kRank, r);
    }
  }

  // --- collectives -----------------------------------------------------------------------------

  // A number for each communicator, as the executor joins them.
  [[nodiscard]] int32_t communicator_of(int32_t r, const Action& action) const {
    const auto replicas = static_cast<int32_t>(schedule_.num_micro_batches.size());
    if (action.kind == kScalars) return 0;
    if (action.kind == kAllReduce) return 1 + stage_of(schedule_, r);
    return 1 + schedule_.num_stages + action.index * replicas + replica_of(schedule_, r);
  }

  [[nodiscard]] int64_t bytes_of(int32_t r, const Action& action) const {
    if (action.kind == kScalars) return costs_.scalar_bytes;
    return action.kind == kAllReduce ? costs(r).bucket_bytes[action.index]
                                     : costs_.tied_bytes[action.index];
  }

  bool come(int32_t r, const Action& action, SimTime now) {
    const int32_t id = communicator_of(r, action);
    if (static_cast<size_t>(id) >= collectives_.size()) {
      collectives_.resize(static_cast<size_t>(id) + 1);
      communicators_.resize(static_cast<size_t>(id) + 1);
    }
    Communicator& communicator = communicators_[id];
    if (communicator.members.empty()) {
      communicator.members = members(schedule_, r, action);
      if (communicator.members.size() > 1) {
        communicator.phases = collective_phases(options_.collectives, communicator.members, links_);
      }
    }
    Collective& collective = collectives_[id];
    if (collective.num_come == 0) {
      collective.bytes = static_cast<double>(bytes_of(r, action));
      collective.phase = 0;
    }
    ++collective.num_come;
    wait(r, Waiting::kCollective, -1, now);
    if (collective.num_come == communicator.members.size()) begin_latency(id, now);
    return false;
  }

  void begin_latency(int32_t id, SimTime now) {
    const Communicator& communicator = communicators_[id];
    if (collectives_[id].phase == communicator.phases.size()) return end_collective(id, now);
    push(now + communicator.phases[collectives_[id].phase].latency, Event::Kind::kCollective, id);
  }

  void begin_phase(int32_t id, SimTime now) {
    const CollectivePhase& phase = communicators_[id].phases[collectives_[id].phase];
    if (collectives_[id].bytes == 0 || phase.path.empty()) return end_phase(id, now);
    start_flow(now, phase.path, collectives_[id].bytes, {Event::Kind::kCollective, id});
  }

  void end_phase(int32_t id, SimTime now) {
    ++collectives_[id].phase;
    begin_latency(id, now);
  }

  void end_collective(int32_t id, SimTime now) {
    const auto bytes = static_cast<int64_t>(collectives_[id].bytes);
    collectives_[id].num_come = 0;
    for (const int32_t member : communicators_[id].members) {
      Rank& rank = ranks_[member];
      const Action& action = schedule_.ranks[member][rank.at];
      record(member, EventClass::kWait, action, rank.wait_begin, now);
      record(member, EventClass::kCollective, action, rank.wait_begin, now, -1, bytes);
      rank.waiting = Waiting::kNot;
      ++rank.at;
      push(now, Event::Kind::kRank, member);
    }
  }

  // --- flows -----------------------------------------------------------------------------------

  void start_flow(SimTime now, const std::vector<LinkUse>& path, double bytes, FlowOwner owner) {
    if (free_flows_.empty()) {
      free_flows_.push_back(static_cast<int32_t>(owners_.size()));
      owners_.emplace_back();
    }
    const int32_t flow = free_flows_.back();
    free_flows_.pop_back();
    owners_[flow] = owner;
    network_.start(now, flow, path, bytes);
  }

  void end_flow(const FluidNetwork::Completion& completion) {
    const FlowOwner owner = owners_[completion.flow];
    free_flows_.push_back(completion.flow);
    owner.kind == Event::Kind::kTransfer ? end_transfer(owner.id, completion.time)
                                         : end_phase(owner.id, completion.time);
  }

  // --- the result ------------------------------------------------------------------------------

  Simulation result() {
    Simulation simulation;
    timeline_.source = "simulated";
    timeline_.builder = schedule_.builder;
    timeline_.num_stages = schedule_.num_stages;
    timeline_.num_replicas = static_cast<int32_t>(schedule_.num_micro_batches.size());
    timeline_.num_chunks = schedule_.num_chunks;
    std::vector<int32_t> index(links_.hosts().size(), -1);
    for (int32_t r = 0; r < num_ranks(schedule_); ++r) {
      TRIREME_CHECK(ranks_[r].at == schedule_.ranks[r].size(), "a verified schedule ends");
      const int32_t host = links_.host_of(r);
      if (index[host] < 0) {
        index[host] = static_cast<int32_t>(timeline_.hosts.size());
        timeline_.hosts.push_back(links_.hosts()[host]);
      }
      timeline_.host_of_rank.push_back(index[host]);
      timeline_.peak_bytes.push_back(ranks_[r].peak);
      simulation.compute.push_back(ranks_[r].compute);
      simulation.step = std::max(simulation.step, ranks_[r].end);
    }
    for (size_t i = 0; i < links_.links().size() && simulation.step > 0; ++i) {
      const LinkGraph::Link& link = links_.links()[i];
      const double share = network_.carried(static_cast<int32_t>(i)) /
                           (link.speed.bandwidth * to_seconds(simulation.step));
      if (share <= simulation.busiest_link_share) continue;
      simulation.busiest_link_share = share;
      simulation.busiest_link = fmt::format("{} -> {}", link.from, link.to);
    }
    simulation.num_events = num_events_;
    simulation.timeline = std::move(timeline_);
    return simulation;
  }

  const Schedule& schedule_;
  const StepCosts& costs_;
  const SimOptions& options_;
  LinkGraph links_;
  FluidNetwork network_;
  std::vector<Rank> ranks_;
  std::vector<Transfer> transfers_;
  std::vector<Communicator> communicators_;
  std::vector<Collective> collectives_;  // by communicator
  std::vector<FlowOwner> owners_;        // by flow
  std::vector<int32_t> free_flows_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t order_ = 0;
  int64_t num_events_ = 0;
  Timeline timeline_;
};

}  // namespace

Result<Simulation> simulate(const Schedule& schedule, const StepCosts& costs,
                            const Cluster& cluster, const SimOptions& options) {
  TRIREME_TRY(check_costs(schedule, costs));
  Simulator simulator(schedule, costs, cluster, options);
  if (simulator.num_devices() < num_ranks(schedule)) {
    return Error{fmt::format("the schedule has {} ranks, but the cluster {} devices",
                             num_ranks(schedule), simulator.num_devices())};
  }
  return simulator.run();
}

}  // namespace trireme
