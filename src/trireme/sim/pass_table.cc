#include "trireme/sim/pass_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"

namespace trireme {

using enum ActionKind;

Status verify_step_costs(const StepCosts& costs, const Schedule& schedule) {
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
    // A single replica reduces nothing.
    const bool has_replicas = schedule.num_micro_batches.size() > 1;
    if (has_replicas &&
        costs.stages[s].bucket_bytes.size() != static_cast<size_t>(schedule.num_buckets[s])) {
      return Error{fmt::format("stage {} has costs of {} buckets, but the schedule has {}", s,
                               costs.stages[s].bucket_bytes.size(), schedule.num_buckets[s])};
    }
    const auto num_tables = static_cast<size_t>(num_row_tables(schedule, static_cast<int32_t>(s)));
    if (has_replicas && costs.stages[s].rows.table_bytes.size() != num_tables) {
      return Error{fmt::format("stage {} has costs of {} row tables, but the schedule has {}", s,
                               costs.stages[s].rows.table_bytes.size(), num_tables)};
    }
  }
  if (costs.tied_bytes.size() != schedule.tied_groups.size()) {
    return Error{fmt::format("there are costs of {} tied groups, but the schedule has {}",
                             costs.tied_bytes.size(), schedule.tied_groups.size())};
  }
  return Status();
}

PassTable::PassTable(const Schedule& schedule, const StepCosts& costs)
    : num_chunks_(static_cast<size_t>(schedule.num_chunks)) {
  for (int32_t stage = 0; stage < schedule.num_stages; ++stage) {
    for (int32_t chunk = 0; chunk < schedule.num_chunks; ++chunk) {
      add(schedule, costs, stage, chunk);
    }
  }
}

void PassTable::add(const Schedule& schedule, const StepCosts& costs, int32_t stage,
                    int32_t chunk) {
  // The rank of a stage's first replica has the stage's number.
  const auto at_other_side = [&](ActionKind kind) -> const ChunkCosts* {
    const auto other = counterpart(schedule, stage, {kind, 0, chunk});
    if (!other.has_value()) return nullptr;
    return &costs.stages[stage_of(schedule, other->rank)].chunks[other->action.chunk];
  };
  const ChunkCosts& chunk_costs = costs.stages[stage].chunks[chunk];
  const ChunkCosts* before = at_other_side(kReceiveActivation);
  const ChunkCosts* after = at_other_side(kReceiveGradient);
  const int64_t received = before != nullptr ? before->activation_bytes : 0;
  const int64_t sent = after != nullptr ? chunk_costs.activation_bytes : 0;
  const int64_t gradient = after != nullptr ? after->gradient_bytes : 0;
  const int64_t sent_gradient = before != nullptr ? chunk_costs.gradient_bytes : 0;
  received_.push_back({received, gradient});

  const int64_t kept = chunk_costs.kept_bytes;
  const int64_t input = chunk_costs.kept_input_bytes;
  const int64_t deferred = chunk_costs.deferred_bytes;
  auto& passes = passes_.emplace_back();
  const auto set = [&](ActionKind kind, SimTime duration, int64_t during, int64_t left) {
    passes[static_cast<size_t>(kind)] = {
        .duration = duration,
        .held_bytes = std::max(during, left) + chunk_costs.transient_bytes,
        .left_bytes = left};
  };
  // A forward that is not trained keeps nothing.
  const int64_t remains = schedule.is_training ? kept : 0;
  set(kForward, chunk_costs.forward, kept - received, remains - received + sent);
  set(kForwardKeepingInput, chunk_costs.forward, kept - received, input - received + sent);
  set(kRecompute, chunk_costs.recompute, kept - input, kept - input);
  set(kBackward, chunk_costs.backward, sent_gradient, sent_gradient - kept - gradient);
  set(kInputGradient, chunk_costs.input_gradient, sent_gradient + deferred,
      sent_gradient + deferred - kept - gradient);
  set(kWeightGradient, chunk_costs.weight_gradient, 0, -deferred);
  // What is known of the passes themselves; of the peak, `before_bytes` are there before.
  const auto set_peak = [&](ActionKind kind, int64_t peak, int64_t before_bytes) {
    PassCost& cost = passes[static_cast<size_t>(kind)];
    cost.held_bytes = std::max(peak - before_bytes, cost.left_bytes);
  };
  if (chunk_costs.forward_peak_bytes > 0) {
    set_peak(kForward, chunk_costs.forward_peak_bytes, received);
    set_peak(kForwardKeepingInput, chunk_costs.forward_peak_bytes, received);
    set_peak(kRecompute, chunk_costs.forward_peak_bytes, input);
  }
  if (chunk_costs.backward_peak_bytes > 0) {
    set_peak(kBackward, chunk_costs.backward_peak_bytes, kept + gradient);
  }
  if (chunk_costs.split_peak_bytes > 0) {
    set_peak(kInputGradient, chunk_costs.split_peak_bytes, kept + gradient);
    set_peak(kWeightGradient, 0, 0);
  }
  passes[static_cast<size_t>(kUpdate)].duration = costs.stages[stage].update;
}

// Box and Muller 1958.
double log_normal(double deviation, uint64_t bits) {
  const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(bits & 0xffffffffU) * 0x1p-32;
  return std::exp(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

}  // namespace trireme
