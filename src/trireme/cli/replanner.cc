#include "trireme/cli/replanner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/cluster/link_graph.h"
#include "trireme/cluster/measured_cluster.h"
#include "trireme/exec/progress.h"

namespace trireme {
namespace {

constexpr int32_t kTimesInARow = 2;
constexpr std::array kWays = {Way::kNextStage, Way::kPreviousStage, Way::kNextReplica};

std::string speed_text(double bytes_per_s) { return rate_text(bytes_per_s) + "B/s"; }

size_t index_of(size_t rank, Way way) { return rank * kNumWays + static_cast<size_t>(way); }

double speed_of(const RankMeasurement& told, Way way) {
  return told.links[static_cast<size_t>(way)].bytes_per_s;
}

// What is known stays where nothing new is.
void renew(double& old, double now) {
  if (now > 0) old = now;
}

// A pass was measured as a whole, so its parts are as they were in proportion.
void set_backward(ChunkCosts& chunk, SimTime backward) {
  if (chunk.backward > 0) {
    const double ratio = static_cast<double>(backward) / static_cast<double>(chunk.backward);
    for (SimTime& each : chunk.bucket_final) {
      each = std::min(backward, static_cast<SimTime>(static_cast<double>(each) * ratio));
    }
  }
  chunk.backward = backward;
}

}  // namespace

int32_t peer_of(const Plan& plan, int32_t rank, Way way) {
  const int32_t stage = rank % plan.pp;
  switch (way) {
    case Way::kNextStage:
      return stage + 1 < plan.pp ? rank + 1 : -1;
    case Way::kPreviousStage:
      return stage > 0 ? rank - 1 : -1;
    case Way::kNextReplica:
      return plan.dp > 1 ? (rank + plan.pp) % (plan.pp * plan.dp) : -1;
  }
  return -1;
}

Replanner::Replanner(const RunSetup& setup)
    : setup_(setup),
      told_(static_cast<size_t>(setup.num_ranks())),
      expected_(told_.size() * kNumWays, 0),
      was_measured_(expected_.size()),
      drifts_(expected_.size()) {
  if (setup.request.cluster.empty()) return;
  std::vector<std::string> ignored;
  const Result<Cluster> cluster = choose_cluster(setup.request.cluster, setup.num_ranks(), ignored);
  if (!cluster.ok() || devices_of(cluster.value()).size() < told_.size()) return;
  LinkGraph graph(cluster.value());
  for (size_t rank = 0; rank < told_.size(); ++rank) {
    for (const Way way : kWays) {
      const int32_t peer = peer_of(setup.plan, static_cast<int32_t>(rank), way);
      if (peer < 0) continue;
      double& slowest = expected_[index_of(rank, way)];
      for (const int32_t link : graph.path(static_cast<int32_t>(rank), peer)) {
        const double bandwidth = graph.links()[link].speed.bandwidth;
        slowest = slowest > 0 ? std::min(slowest, bandwidth) : bandwidth;
      }
    }
  }
}

bool Replanner::hear_link(size_t index, double bytes_per_s) {
  if (expected_[index] <= 0) {
    if (was_measured_[index]) expected_[index] = bytes_per_s;
    was_measured_[index] = true;
    return false;
  }
  const double ratio = bytes_per_s / expected_[index];
  const double threshold = setup_.request.replan_drift;
  const int32_t direction = ratio > threshold ? 1 : ratio < 1 / threshold ? -1 : 0;
  Drift& drift = drifts_[index];
  drift.times = direction == drift.direction ? drift.times + 1 : 1;
  drift.direction = direction;
  return direction != 0 && drift.times >= kTimesInARow;
}

bool Replanner::hear(std::span<const RankMeasurement> told) {
  bool has_drifted = false;
  double most = 1;
  for (size_t rank = 0; rank < told_.size(); ++rank) {
    renew(told_[rank].forward_s, told[rank].forward_s);
    renew(told_[rank].backward_s, told[rank].backward_s);
    renew(told_[rank].update_s, told[rank].update_s);
    for (const Way way : kWays) {
      const MeasuredLink& now = told[rank].links[static_cast<size_t>(way)];
      if (now.bytes_per_s <= 0) continue;
      told_[rank].links[static_cast<size_t>(way)] = now;
      const double expected = expected_[index_of(rank, way)];
      if (!hear_link(index_of(rank, way), now.bytes_per_s)) continue;
      has_drifted = true;
      const double size = std::max(now.bytes_per_s / expected, expected / now.bytes_per_s);
      if (size <= most) continue;
      most = size;
      what_ = fmt::format("rank {} sends to rank {} at {} instead of {}", rank,
                          peer_of(setup_.plan, static_cast<int32_t>(rank), way),
                          speed_text(now.bytes_per_s), speed_text(expected));
    }
  }
  if (!has_drifted) return false;
  for (size_t rank = 0; rank < told_.size(); ++rank) {
    for (const Way way : kWays) renew(expected_[index_of(rank, way)], speed_of(told_[rank], way));
  }
  std::ranges::fill(drifts_, Drift());
  return true;
}

std::vector<RankLink> measured_links(const Plan& plan, std::span<const RankMeasurement> told) {
  std::vector<RankLink> links;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    for (const Way way : kWays) {
      if (speed_of(told[rank], way) <= 0) continue;
      const auto from = static_cast<int32_t>(rank);
      links.push_back({.from = from,
                       .to = peer_of(plan, from, way),
                       .speed = told[rank].links[static_cast<size_t>(way)]});
    }
  }
  return links;
}

Result<Prediction> Replanner::prediction() const {
  const RunRequest& request = setup_.request;
  const int64_t num_micro_batches = int64_t{setup_.plan.dp} * setup_.plan.micro_batches;
  TRIREME_TRY(Prediction prediction,
              prepare_prediction(
                  setup_.graph, setup_.plan,
                  {.sources = {.profile = request.profile, .cluster = request.cluster},
                   .optimizer = request.optimizer,
                   .micro_batch = (request.batch + num_micro_batches - 1) / num_micro_batches,
                   .clips_norm = request.clip_norm.has_value(),
                   .threads = request.threads}));
  // Passes were timed as they took, with what they had of a core.
  for (DeviceKind& kind : prediction.cluster.device_kinds) kind.core_share = 1;
  LinkSpeed link;
  std::vector<MeasuredPath> paths;
  std::vector<double> latencies;
  for (const RankLink& each : measured_links(setup_.plan, told_)) {
    paths.push_back({.from = each.from, .to = each.to, .bytes_per_s = each.speed.bytes_per_s});
    link.bandwidth = std::max(link.bandwidth, each.speed.bytes_per_s);
    latencies.push_back(each.speed.latency_s);
  }
  if (request.cluster.empty()) {
    std::ranges::sort(latencies);
    link.latency = latencies[latencies.size() / 2] / 2;
    const DeviceKind device = *devices_of(prediction.cluster)[0];
    prediction.cluster = star_of(device, setup_.num_ranks(), link);
  }
  prediction.cluster = with_measured_links(prediction.cluster, paths);
  for (int32_t stage = 0; stage < setup_.plan.pp; ++stage) {
    double forward_s = 0;
    double backward_s = 0;
    double update_s = 0;
    for (int32_t replica = 0; replica < setup_.plan.dp; ++replica) {
      const RankMeasurement& rank = told_[static_cast<size_t>(replica * setup_.plan.pp + stage)];
      forward_s += rank.forward_s / setup_.plan.dp;
      backward_s += rank.backward_s / setup_.plan.dp;
      update_s += rank.update_s / setup_.plan.dp;
    }
    StageCosts& costs = prediction.costs.stages[static_cast<size_t>(stage)];
    if (forward_s > 0) costs.chunks[0].forward = step_cost_time(forward_s);
    if (backward_s > 0) set_backward(costs.chunks[0], step_cost_time(backward_s));
    if (update_s > 0) costs.update = step_cost_time(update_s);
  }
  return prediction;
}

Result<Replanner::Change> Replanner::plan(const std::vector<int32_t>& now) const {
  TRIREME_TRY(const Prediction step, prediction());
  TRIREME_TRY(std::vector<int32_t> extra,
              find_extra_warm_ups(
                  step, {.sharing = LinkSharing::kTransfersFirst, .records_events = false}));
  Change change{.extra_warm_ups = std::move(extra), .why = what_};
  if (change.extra_warm_ups == now) return change;
  ScheduleOptions options = setup_.schedule;
  options.num_micro_batches.assign(static_cast<size_t>(setup_.plan.dp), setup_.plan.micro_batches);
  options.clips_norm = setup_.request.clip_norm.has_value();
  options.extra_warm_ups = change.extra_warm_ups;
  options.found_extra_warm_ups = now;
  TRIREME_TRY(change.least_look_ahead, look_ahead_of_change(setup_.plan.schedule, options));
  return change;
}

std::string links_text(const Plan& plan, std::span<const RankMeasurement> told) {
  const auto slowest = [&](int32_t stage, Way way) {
    double found = 0;
    for (auto rank = static_cast<size_t>(stage); rank < told.size();
         rank += static_cast<size_t>(plan.pp)) {
      const double speed = speed_of(told[rank], way);
      if (speed > 0) found = found > 0 ? std::min(found, speed) : speed;
    }
    return found;
  };
  std::vector<std::string> ways;
  for (int32_t stage = 0; stage < plan.pp; ++stage) {
    if (const double there = slowest(stage, Way::kNextStage); there > 0) {
      ways.push_back(fmt::format("stage {} to {} {}", stage, stage + 1, speed_text(there)));
    }
    if (const double back = slowest(stage, Way::kPreviousStage); back > 0) {
      ways.push_back(fmt::format("stage {} to {} {}", stage, stage - 1, speed_text(back)));
    }
    if (const double sums = slowest(stage, Way::kNextReplica); sums > 0) {
      ways.push_back(fmt::format("replicas of stage {} {}", stage, speed_text(sums)));
    }
  }
  return ways.empty() ? "" : fmt::format("links as measured: {}", fmt::join(ways, ", "));
}

}  // namespace trireme
