#include "trireme/schedule/builders.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"
#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

using enum ActionKind;

// 1F1B needs a look-ahead of at least 1, because neighbours send to each other at the same time; 2
// lets one receive of activations and one of gradients travel while the device computes, and bounds
// the memory of what has arrived early.
constexpr int32_t kLookAhead = 2;

constexpr ScheduleBuilder kBuilders[] = {
    {.name = "gpipe",
     .summary = "all forwards, then all backwards; keeps every micro-batch alive",
     .source = "Huang et al., GPipe, NeurIPS 2019",
     .is_training = true,
     .build_order = gpipe_order},
    {.name = "1f1b",
     .summary = "a forward and a backward in turn; keeps at most one micro-batch a stage alive",
     .source = "Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021",
     .is_training = true,
     .build_order = one_f_one_b_order},
    {.name = "forward-only",
     .summary = "forwards without backwards: an evaluation",
     .source = "-",
     .is_training = false,
     .build_order = forward_only_order},
};

Result<const ScheduleBuilder*> find_builder(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ScheduleBuilder& row : kBuilders) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  return Error{
      fmt::format("unknown schedule {}; known are {}", in_quotes(name), fmt::join(names, ", "))};
}

// Puts receives right before the action that needs their data and sends right after the one that
// makes it.
std::vector<Action> with_transfers(const Schedule& schedule, int32_t rank,
                                   const std::vector<Action>& order) {
  std::vector<Action> actions;
  for (const Action& compute : order) {
    const bool is_forward = compute.kind == kForward;
    const Action receive{is_forward ? kReceiveActivation : kReceiveGradient, compute.index,
                         compute.chunk};
    const Action send{is_forward ? kSendActivation : kSendGradient, compute.index, compute.chunk};
    if (counterpart(schedule, rank, receive)) actions.push_back(receive);
    actions.push_back(compute);
    if (counterpart(schedule, rank, send)) actions.push_back(send);
  }
  return actions;
}

// The collectives and the update that end a step. Tied gradients are summed over the stages first,
// so that each replica's bucket then holds the same number wherever the parameter lives. Losses
// wait for the last backward: a collective in the middle would stop the pipeline.
std::vector<Action> build_reductions(const Schedule& schedule, int32_t rank) {
  std::vector<Action> actions;
  actions.push_back({kScalars, static_cast<int32_t>(ScalarExchange::kLosses)});
  if (!schedule.is_training) return actions;
  const int32_t stage = stage_of(schedule, rank);
  for (size_t group = 0; group < schedule.tied_groups.size(); ++group) {
    if (!std::ranges::binary_search(schedule.tied_groups[group], stage)) continue;
    actions.push_back({kTiedReduce, static_cast<int32_t>(group)});
  }
  for (int32_t bucket = 0; bucket < schedule.num_buckets[static_cast<size_t>(stage)]; ++bucket) {
    actions.push_back({kAllReduce, bucket});
  }
  if (schedule.clips_norm) {
    actions.push_back({kScalars, static_cast<int32_t>(ScalarExchange::kSquaredNorms)});
  }
  actions.push_back({kUpdate});
  return actions;
}

}  // namespace

std::span<const ScheduleBuilder> schedule_builders() { return kBuilders; }

Result<Schedule> build_schedule(std::string_view name, const ScheduleOptions& options) {
  TRIREME_TRY(const ScheduleBuilder* builder, find_builder(name));
  Schedule schedule{.builder = std::string(name),
                    .num_stages = options.num_stages,
                    .num_micro_batches = options.num_micro_batches,
                    .look_ahead = kLookAhead,
                    .is_training = builder->is_training,
                    .tied_groups = options.tied_groups,
                    .num_buckets = options.num_buckets,
                    .clips_norm = options.clips_norm};
  if (schedule.num_buckets.empty() && schedule.num_stages > 0) {
    schedule.num_buckets.assign(static_cast<size_t>(schedule.num_stages), 0);
  }
  TRIREME_TRY(verify_shape(schedule));
  for (int32_t rank = 0; rank < num_ranks(schedule); ++rank) {
    const int32_t count =
        schedule.num_micro_batches[static_cast<size_t>(replica_of(schedule, rank))];
    std::vector<Action> actions = with_transfers(
        schedule, rank, builder->build_order(stage_of(schedule, rank), schedule.num_stages, count));
    const std::vector<Action> reductions = build_reductions(schedule, rank);
    actions.insert(actions.end(), reductions.begin(), reductions.end());
    schedule.ranks.push_back(std::move(actions));
  }
  TRIREME_TRY(verify_schedule(schedule));
  return schedule;
}

}  // namespace trireme
