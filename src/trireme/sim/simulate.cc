#include "trireme/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/cluster/link_graph.h"
#include "trireme/schedule/early_sums.h"
#include "trireme/schedule/peers.h"
#include "trireme/sim/collective_phases.h"
#include "trireme/sim/final_sums.h"
#include "trireme/sim/fluid_network.h"
#include "trireme/sim/pass_table.h"
#include "trireme/sim/rank_state.h"

namespace trireme {
namespace {

using enum ActionKind;

class Simulator {
 public:
  Simulator(const Schedule& schedule, const StepCosts& costs, const Cluster& cluster,
            const SimOptions& options)
      : schedule_(schedule),
        costs_(costs),
        options_(options),
        passes_(schedule, costs),
        links_(cluster),
        network_(links_.bandwidths()),
        ranks_(schedule.ranks.size()) {}

  [[nodiscard]] int32_t num_devices() const { return links_.num_devices(); }

  Result<Simulation> run() {
    size_t num_transfers = 0;
    for (int32_t r = 0; r < num_ranks(schedule_); ++r) {
      ranks_[r].first_transfer = num_transfers;
      num_transfers += 2 * static_cast<size_t>(schedule_.num_steps) *
                       static_cast<size_t>(num_micro_batches(r) * schedule_.num_chunks);
      ranks_[r].memory = ranks_[r].peak = costs_of(r).static_bytes;
      ranks_[r].sums = final_sums(schedule_, costs_, passes_, r);
    }
    transfers_.resize(num_transfers);
    for (int32_t r = 0; r < num_ranks(schedule_); ++r) {
      post_receives(r, 0, schedule_.look_ahead);
      push(0, Event::Kind::kRank, r);
    }
    while (!is_too_long_) {
      const auto flow = network_.next();
      if (flow.has_value() && (events_.empty() || flow->time <= events_.top().time)) {
        if (flow->time > kMaxTime) break;
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
    if (is_too_long_ || network_.next().has_value()) {
      return Error{"the step takes more than 146 years, which is the end of simulated time"};
    }
    return result();
  }

 private:
  struct Event {
    enum class Kind : uint8_t { kRank, kTransfer, kCollective, kFinalSum };
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

  [[nodiscard]] const StageCosts& costs_of(int32_t rank) const {
    return costs_.stages[stage_of(schedule_, rank)];
  }
  [[nodiscard]] int32_t num_micro_batches(int32_t rank) const {
    return schedule_.num_micro_batches[replica_of(schedule_, rank)];
  }

  void push(SimTime time, Event::Kind kind, int32_t id) {
    is_too_long_ = is_too_long_ || time > kMaxTime;
    events_.push({.time = time, .order = order_++, .kind = kind, .id = id});
  }

  void record(int32_t rank, EventClass event_class, const Action& action, SimTime begin,
              SimTime end, int32_t peer = -1, int64_t bytes = 0) {
    if (!options_.records_events) return;
    if (event_class == EventClass::kWait && begin == end) return;
    Action of_step = action;
    of_step.batch = 0;
    timeline_.events.push_back({.rank = rank,
                                .event_class = event_class,
                                .action = of_step,
                                .begin = begin,
                                .end = end,
                                .step = action.batch,
                                .peer = peer,
                                .bytes = bytes});
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
      case Event::Kind::kFinalSum:
        return sum_early(event.id, event.time);
    }
  }

  // Runs the rank's list from its next action until it computes or waits.
  void advance(int32_t r, SimTime now) {
    Rank& rank = ranks_[r];
    const std::vector<Action>& actions = schedule_.ranks[r];
    while (rank.at < actions.size()) {
      const Action& action = actions[rank.at];
      if (action.kind == kAllReduce && rank.at < rank.next_sum) {
        ++rank.at;  // it was issued early
        continue;
      }
      if (!has_collectives(r, &action, now)) return;
      if (is_compute(action.kind)) {
        compute(r, action, now);
        return;
      }
      if (is_collective(action.kind)) {
        issue(r, action, now);
        ++rank.at;
        continue;
      }
      if (!(is_send(action.kind) ? send(r, action, now) : receive(r, action, now))) return;
    }
    if (!has_collectives(r, nullptr, now)) return;
    while (!rank.sends.empty()) {
      if (transfers_[rank.sends.front()].done == kNever) {
        return wait(r, Waiting::kSend, rank.sends.front(), now);
      }
      collect_oldest_send(rank);
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
    const PassCost& cost = passes_.of(stage_of(schedule_, r), action);
    const SimTime duration = jittered(cost.duration, r, rank.at);
    record(r, event_class_of(action.kind), action, now, now + duration);
    rank.compute += duration;
    rank.peak = std::max(rank.peak, rank.memory + cost.held_bytes);
    rank.memory += cost.left_bytes;
    ++rank.at;
    for (const FinalSum& final_sum : rank.sums) {
      if (final_sum.pass != action) continue;
      const auto after = final_sum.share * static_cast<double>(duration);
      announced_.emplace_back(r, final_sum.sum);
      push(now + std::llround(after), Event::Kind::kFinalSum,
           static_cast<int32_t>(announced_.size()) - 1);
    }
    push(now + duration, Event::Kind::kRank, r);
  }

  [[nodiscard]] SimTime jittered(SimTime duration, int32_t r, size_t place) const {
    if (options_.jitter == 0) return duration;
    const uint64_t draw = mix_bits(mix_bits(options_.seed, static_cast<uint64_t>(r)), place);
    return std::llround(static_cast<double>(duration) * log_normal(options_.jitter, draw));
  }

  // --- transfers -------------------------------------------------------------------------------

  // The transfer that the receiver's action waits for.
  [[nodiscard]] int32_t transfer_of(int32_t receiver, const Action& receive) const {
    const int32_t direction = receive.kind == kReceiveActivation ? 0 : 1;
    const int32_t slot = ((receive.batch * 2 + direction) * schedule_.num_chunks + receive.chunk) *
                             num_micro_batches(receiver) +
                         receive.index;
    return static_cast<int32_t>(ranks_[receiver].first_transfer) + slot;
  }

  int32_t channel_to(int32_t sender, int32_t receiver) {
    std::deque<Channel>& channels = ranks_[sender].channels;
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
    if (options_.has_free_network) {
      latency = 0;
      channel.cpu_per_byte = 0;
    }
    channel.latency = to_sim_time(latency);
    return static_cast<int32_t>(channels.size()) - 1;
  }

  [[nodiscard]] SimTime processor_time(const Transfer& transfer) {
    return to_sim_time(channel_of(transfer).cpu_per_byte * static_cast<double>(transfer.bytes));
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
      transfer.bytes = passes_.received_bytes(stage_of(schedule_, other.rank), other.action);
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
    collect_oldest_send(rank);
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
      rank.memory += passes_.received_bytes(stage_of(schedule_, r), action);
      rank.peak = std::max(rank.peak, rank.memory);
      begin_if_ready(id, now);
    }
  }

  // The executor holds what it sends until it looks whether it has gone.
  void collect_oldest_send(Rank& rank) {
    rank.memory -= transfers_[rank.sends.front()].bytes;
    rank.sends.pop_front();
  }

  void begin_if_ready(int32_t id, SimTime now) {
    Transfer& transfer = transfers_[id];
    const bool may_begin =
        transfer.send_posted != kNever &&
        (options_.transfers == TransferMode::kEager || transfer.receive_posted != kNever);
    if (!may_begin || transfer.has_begun) return;
    transfer.has_begun = true;
    const SimTime latency = channel_of(transfer).latency;
    if (latency > 0) return push(now + latency, Event::Kind::kTransfer, id);
    begin_transfer(id, now);
  }

  [[nodiscard]] Channel& channel_of(const Transfer& transfer) {
    return ranks_[transfer.sender].channels[transfer.channel];
  }

  // Its latency has passed: its bytes come after those of the transfers before it.
  void begin_transfer(int32_t id, SimTime now) {
    Channel& channel = channel_of(transfers_[id]);
    if (channel.is_busy) return channel.arriving.push_back(id);
    channel.is_busy = true;
    start_flow(now, channel.path, transfers_[id].bytes, {Event::Kind::kTransfer, id});
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
    Channel& channel = channel_of(transfer);
    channel.is_busy = false;
    if (!channel.arriving.empty()) {
      const int32_t next = channel.arriving.front();
      channel.arriving.pop_front();
      begin_transfer(next, now);
    }
    for (const int32_t r : {transfer.receiver, transfer.sender}) {
      Rank& rank = ranks_[r];
      if (rank.waiting == Waiting::kNot || rank.waits_for != id) continue;
      const bool receives = rank.waiting == Waiting::kReceive;
      record(r, EventClass::kWait, receives ? transfer.receive : sent.action, rank.wait_begin, now,
             receives ? transfer.sender : transfer.receiver);
      rank.waiting = Waiting::kNot;
      rank.waits_for = -1;
      if (!receives) collect_oldest_send(rank);
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
    return action.kind == kAllReduce ? costs_of(r).bucket_bytes[action.index]
                                     : costs_.tied_bytes[action.index];
  }

  // False: the rank waits for a collective that its action needs; without an action for any.
  bool has_collectives(int32_t r, const Action* action, SimTime now) {
    for (const IssuedCollective& issued : ranks_[r].collectives) {
      if (action != nullptr && !waits_for(*action, issued.action)) continue;
      ranks_[r].waits_for_collective = issued.action;
      wait(r, Waiting::kCollective, -1, now);
      return false;
    }
    return true;
  }

  void issue(int32_t r, const Action& action, SimTime now) {
    const int32_t id = communicator_of(r, action);
    if (static_cast<size_t>(id) >= communicators_.size()) {
      communicators_.resize(static_cast<size_t>(id) + 1);
    }
    Communicator& communicator = communicators_[id];
    if (communicator.members.empty()) {
      communicator.members = members(schedule_, r, action);
      if (communicator.members.size() > 1) {
        communicator.phases = collective_phases(options_.collectives, communicator.members, links_);
      }
    }
    ranks_[r].collectives.push_back({action, now});
    auto found = std::ranges::find(communicator.collectives, action, &Collective::action);
    if (found == communicator.collectives.end()) {
      communicator.collectives.push_back({.action = action, .bytes = bytes_of(r, action)});
      found = std::prev(communicator.collectives.end());
    }
    ++found->num_come;
    if (found == communicator.collectives.begin()) begin_if_complete(id, now);
  }

  void sum_early(int32_t announced, SimTime now) {
    const auto [r, sum] = announced_[announced];
    Rank& rank = ranks_[r];
    rank.final_sums.push_back(sum);
    rank.next_sum = for_each_final_sum(
        schedule_.ranks[r], std::max(rank.next_sum, rank.at),
        [&](const Action& each) {
          return std::ranges::find(rank.final_sums, each) != rank.final_sums.end();
        },
        [&](const Action& each) {
          issue(r, each, now);
          return true;
        });
  }

  void begin_if_complete(int32_t id, SimTime now) {
    const Communicator& communicator = communicators_[id];
    if (communicator.collectives.front().num_come < communicator.members.size()) return;
    begin_latency(id, now);
  }

  void begin_latency(int32_t id, SimTime now) {
    const Communicator& communicator = communicators_[id];
    const size_t phase = communicator.collectives.front().phase;
    if (phase == communicator.phases.size()) return end_collective(id, now);
    const SimTime latency = options_.has_free_network ? 0 : communicator.phases[phase].latency;
    push(now + latency, Event::Kind::kCollective, id);
  }

  void begin_phase(int32_t id, SimTime now) {
    const Communicator& communicator = communicators_[id];
    const Collective& collective = communicator.collectives.front();
    start_flow(now, communicator.phases[collective.phase].path, collective.bytes,
               {Event::Kind::kCollective, id});
  }

  void end_phase(int32_t id, SimTime now) {
    ++communicators_[id].collectives.front().phase;
    begin_latency(id, now);
  }

  void end_collective(int32_t id, SimTime now) {
    Communicator& communicator = communicators_[id];
    const Collective ended = communicator.collectives.front();
    communicator.collectives.pop_front();
    for (const int32_t member : communicator.members) {
      Rank& rank = ranks_[member];
      const auto issued =
          std::ranges::find(rank.collectives, ended.action, &IssuedCollective::action);
      record(member, EventClass::kCollective, ended.action, issued->begin, now, -1, ended.bytes);
      rank.collectives.erase(issued);
      if (rank.waiting != Waiting::kCollective || rank.waits_for_collective != ended.action) {
        continue;
      }
      record(member, EventClass::kWait, ended.action, rank.wait_begin, now);
      rank.waiting = Waiting::kNot;
      push(now, Event::Kind::kRank, member);
    }
    if (!communicator.collectives.empty()) begin_if_complete(id, now);
  }

  // --- flows -----------------------------------------------------------------------------------

  void start_flow(SimTime now, const std::vector<LinkUse>& path, int64_t bytes, FlowOwner owner) {
    if (bytes == 0 || path.empty() || options_.has_free_network) return end(owner, now);
    if (free_flows_.empty()) {
      free_flows_.push_back(static_cast<int32_t>(owners_.size()));
      owners_.emplace_back();
    }
    const int32_t flow = free_flows_.back();
    free_flows_.pop_back();
    owners_[flow] = owner;
    const bool goes_first = !schedule_.communication.has_one_urgency &&
                            options_.sharing == LinkSharing::kTransfersFirst &&
                            owner.kind == Event::Kind::kTransfer;
    network_.start(now, flow, path, static_cast<double>(bytes), goes_first ? 1 : 0);
  }

  void end_flow(const FluidNetwork::Completion& completion) {
    free_flows_.push_back(completion.flow);
    end(owners_[completion.flow], completion.time);
  }

  void end(const FlowOwner& owner, SimTime now) {
    owner.kind == Event::Kind::kTransfer ? end_transfer(owner.id, now) : end_phase(owner.id, now);
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
  PassTable passes_;
  LinkGraph links_;
  FluidNetwork network_;
  std::vector<Rank> ranks_;
  std::vector<Transfer> transfers_;
  std::deque<Communicator> communicators_;             // flows hold their paths
  std::vector<FlowOwner> owners_;                      // by flow
  std::vector<std::pair<int32_t, Action>> announced_;  // final sums and their ranks
  std::vector<int32_t> free_flows_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t order_ = 0;
  int64_t num_events_ = 0;
  bool is_too_long_ = false;
  Timeline timeline_;
};

}  // namespace

Result<Simulation> simulate(const Schedule& schedule, const StepCosts& costs,
                            const Cluster& cluster, const SimOptions& options) {
  TRIREME_TRY(verify_step_costs(costs, schedule));
  if (!(options.jitter >= 0 && options.jitter <= 1)) {
    return Error{fmt::format("the jitter is {}, not 0 to 1", options.jitter)};
  }
  Simulator simulator(schedule, costs, cluster, options);
  if (simulator.num_devices() < num_ranks(schedule)) {
    return Error{fmt::format("the schedule has {} ranks, but the cluster {} devices",
                             num_ranks(schedule), simulator.num_devices())};
  }
  return simulator.run();
}

}  // namespace trireme
