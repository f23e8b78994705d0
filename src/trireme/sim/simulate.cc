#include "trireme/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/schedule/early_sums.h"
#include "trireme/sim/simulated_collectives.h"
#include "trireme/sim/simulated_transfers.h"
#include "trireme/sim/simulation_state.h"

namespace trireme {
namespace {

using enum ActionKind;

class Simulator {
 public:
  // `state`, whose ranks are there, outlives it.
  explicit Simulator(SimulationState& state)
      : state_(state), transfers_(state), collectives_(state) {}

  Result<Simulation> run() {
    for (int32_t r = 0; r < num_ranks(state_.schedule); ++r) {
      Rank& rank = state_.ranks[r];
      rank.memory = rank.peak = costs_of(state_, r).static_bytes;
      rank.sums = final_sums(state_.schedule, state_.costs, state_.passes, r);
    }
    for (int32_t r = 0; r < num_ranks(state_.schedule); ++r) {
      transfers_.post_receives(r, 0, state_.schedule.look_ahead);
      state_.agenda.add({0, Agenda::Kind::kRank, r});
    }
    while (const auto entry = state_.agenda.take()) handle(*entry);
    if (state_.agenda.is_too_long()) {
      return Error{"the step takes more than 146 years, which is the end of simulated time"};
    }
    return result();
  }

 private:
  void handle(const Agenda::Entry& entry) {
    switch (entry.kind) {
      case Agenda::Kind::kRank:
        return advance(entry.id, entry.time);
      case Agenda::Kind::kTransfer:
        return transfers_.begin(entry.id, entry.time);
      case Agenda::Kind::kTransferEnd:
        return transfers_.end(entry.id, entry.time);
      case Agenda::Kind::kCollective:
        return collectives_.begin_phase(entry.id, entry.time);
      case Agenda::Kind::kCollectivePhase:
        return collectives_.end_phase(entry.id, entry.time);
      case Agenda::Kind::kFinalSum:
        return sum_early(entry.id, entry.time);
    }
  }

  // Runs the rank's list from its next action until it computes or waits.
  void advance(int32_t r, SimTime now) {
    Rank& rank = state_.ranks[r];
    const std::vector<Action>& actions = state_.schedule.ranks[r];
    while (rank.at < actions.size()) {
      const Action& action = actions[rank.at];
      if (action.kind == kAllReduce && rank.at < rank.next_sum) {
        ++rank.at;  // it was issued early
        continue;
      }
      if (!collectives_.are_there_for(r, &action, now)) return;
      if (is_compute(action.kind)) {
        compute(r, action, now);
        return;
      }
      if (is_collective(action.kind)) {
        collectives_.issue(r, action, now);
        ++rank.at;
        continue;
      }
      const bool goes_on = is_send(action.kind) ? transfers_.send(r, action, now)
                                                : transfers_.receive(r, action, now);
      if (!goes_on) return;
    }
    if (!collectives_.are_there_for(r, nullptr, now)) return;
    if (transfers_.collect_sends(r, now)) rank.end = now;
  }

  void compute(int32_t r, const Action& action, SimTime now) {
    Rank& rank = state_.ranks[r];
    const PassCost& cost = state_.passes.of(stage_of(state_.schedule, r), action);
    const SimTime work = jittered(cost.duration, r, rank.at);
    for (const FinalSum& final_sum : rank.sums) {
      if (final_sum.pass != action) continue;
      const auto after = std::llround(final_sum.share * static_cast<double>(work));
      announced_.emplace_back(r, final_sum.sum);
      state_.agenda.add({rank.quota.end_of(now, after), Agenda::Kind::kFinalSum,
                         static_cast<int32_t>(announced_.size()) - 1});
    }
    const SimTime end = rank.quota.use(now, work);
    record(state_, {.rank = r,
                    .event_class = event_class_of(action.kind),
                    .action = action,
                    .begin = now,
                    .end = end});
    rank.compute += end - now;
    rank.peak = std::max(rank.peak, rank.memory + cost.held_bytes);
    rank.memory += cost.left_bytes;
    ++rank.at;
    state_.agenda.add({end, Agenda::Kind::kRank, r});
  }

  [[nodiscard]] SimTime jittered(SimTime duration, int32_t r, size_t place) const {
    const SimOptions& options = state_.options;
    if (options.jitter == 0) return duration;
    const uint64_t draw = mix_bits(mix_bits(options.seed, static_cast<uint64_t>(r)), place);
    return std::llround(static_cast<double>(duration) * log_normal(options.jitter, draw));
  }

  void sum_early(int32_t announced, SimTime now) {
    const auto [r, sum] = announced_[announced];
    Rank& rank = state_.ranks[r];
    rank.final_sums.push_back(sum);
    rank.next_sum = for_each_final_sum(
        state_.schedule.ranks[r], std::max(rank.next_sum, rank.at),
        [&](const Action& each) {
          return std::ranges::find(rank.final_sums, each) != rank.final_sums.end();
        },
        [&, rank_number = r](const Action& each) {
          collectives_.issue(rank_number, each, now);
          return true;
        });
  }

  Simulation result() {
    Simulation simulation;
    const Schedule& schedule = state_.schedule;
    LinkGraph& links = state_.links;
    Timeline& timeline = state_.timeline;
    timeline.source = "simulated";
    timeline.builder = schedule.builder;
    timeline.num_stages = schedule.num_stages;
    timeline.num_replicas = static_cast<int32_t>(schedule.num_micro_batches.size());
    timeline.num_chunks = schedule.num_chunks;
    std::vector<int32_t> index(links.hosts().size(), -1);
    for (int32_t r = 0; r < num_ranks(schedule); ++r) {
      const Rank& rank = state_.ranks[r];
      TRIREME_CHECK(rank.at == schedule.ranks[r].size(), "a verified schedule ends");
      const int32_t host = links.host_of(r);
      if (index[host] < 0) {
        index[host] = static_cast<int32_t>(timeline.hosts.size());
        timeline.hosts.push_back(links.hosts()[host]);
      }
      timeline.host_of_rank.push_back(index[host]);
      timeline.peak_bytes.push_back(rank.peak);
      simulation.compute.push_back(rank.compute);
      simulation.step = std::max(simulation.step, rank.end);
    }
    for (size_t i = 0; i < links.links().size() && simulation.step > 0; ++i) {
      const LinkGraph::Link& link = links.links()[i];
      const double share = state_.agenda.carried(static_cast<int32_t>(i)) /
                           (link.speed.bandwidth * to_seconds(simulation.step));
      if (share <= simulation.busiest_link_share) continue;
      simulation.busiest_link_share = share;
      simulation.busiest_link = fmt::format("{} -> {}", link.from, link.to);
    }
    simulation.num_events = state_.agenda.num_taken();
    simulation.timeline = std::move(timeline);
    return simulation;
  }

  SimulationState& state_;
  SimulatedTransfers transfers_;
  SimulatedCollectives collectives_;
  std::vector<std::pair<int32_t, Action>> announced_;  // final sums and their ranks
};

Quota quota_of(const DeviceKind& kind) {
  const SimTime period = to_sim_time(kind.share_period);
  const SimTime of_period = std::llround(kind.core_share * static_cast<double>(period));
  return kind.core_share < 1 ? Quota(period, of_period) : Quota();
}

}  // namespace

Result<Simulation> simulate(const Schedule& schedule, const StepCosts& costs,
                            const Cluster& cluster, const SimOptions& options) {
  TRIREME_TRY(verify_step_costs(costs, schedule));
  if (!(options.jitter >= 0 && options.jitter <= 1)) {
    return Error{fmt::format("the jitter is {}, not 0 to 1", options.jitter)};
  }
  LinkGraph links(cluster);
  if (links.num_devices() < num_ranks(schedule)) {
    return Error{fmt::format("the schedule has {} ranks, but the cluster {} devices",
                             num_ranks(schedule), links.num_devices())};
  }
  std::vector<Rank> ranks(schedule.ranks.size());
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r].quota = quota_of(*devices[r]);
  Agenda agenda(links.bandwidths());
  SimulationState state{.schedule = schedule,
                        .costs = costs,
                        .options = options,
                        .passes = PassTable(schedule, costs),
                        .links = std::move(links),
                        .agenda = std::move(agenda),
                        .ranks = std::move(ranks)};
  return Simulator(state).run();
}

}  // namespace trireme
