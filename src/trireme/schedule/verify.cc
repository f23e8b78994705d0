#include "trireme/schedule/verify.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/schedule/unroll.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

constexpr ScheduleRule kRules[] = {
    {"shape", "sizes, counts and tied groups make sense together", check_shape},
    {"ranks", "there is one list a rank", check_ranks},
    {"index-range", "every index and chunk is in range", check_index_range},
    {"legal-here", "every action exists on its virtual stage and in this kind of step",
     check_legal_here},
    {"borders", "what a neighbour does, or leaves to this step, is as found= and ahead= say",
     check_borders},
    {"once", "no action is listed twice", check_once},
    {"forwards", "every micro-batch has its forward in every chunk", check_forwards},
    {"backwards", "in training, every micro-batch has its backward in every chunk",
     check_backwards},
    {"one-of-a-kind", "a micro-batch has F or Fc, and B or both I and W", check_one_of_a_kind},
    {"recomputations", "R is listed exactly where the forward is Fc", check_recomputations},
    {"forward-before-backward", "the forward comes before the backward",
     check_forward_before_backward},
    {"recompute-between", "R comes after Fc and before the backward", check_recompute_between},
    {"weights-after-inputs", "W comes after I", check_weights_after_inputs},
    {"chunks-in-order", "chunks that follow each other on one rank run in their order",
     check_chunks_in_order},
    {"transfers-match", "every send has its receive on the peer, and every receive its send",
     check_transfers_match},
    {"receive-before-forward", "RA comes before the forward", check_receive_before_forward},
    {"send-after-forward", "SA comes after the forward", check_send_after_forward},
    {"receive-before-backward", "RG comes before B or I", check_receive_before_backward},
    {"send-after-backward", "SG comes after B or I", check_send_after_backward},
    {"transfer-order", "transfers of one sender, receiver and kind have one order",
     check_transfer_order},
    {"losses", "SC0 comes once, after the last forward", check_losses},
    {"tied-reductions", "TR comes once a tied group of the stage, after the last backward",
     check_tied_reductions},
    {"bucket-reductions", "AR comes once a bucket, after the last backward",
     check_bucket_reductions},
    {"tied-before-buckets", "tied gradients are reduced over stages before replicas",
     check_tied_before_buckets},
    {"row-exchanges",
     "SX0 comes after the last forward, SX1 after it, and the sum of each table after the last "
     "backward",
     check_row_exchanges},
    {"norms", "SC1 comes exactly when clipping, after SC0, TR, AR and SX", check_norms},
    {"collective-order", "members issue the collectives of a communicator in one order",
     check_collective_order},
    {"one-weight-version", "forward and backward of a micro-batch see the same weights",
     check_one_weight_version},
    {"update", "in training, U comes once and last", check_update},
    {"deadlock", "no rank waits for ever, even where a send blocks until its receive is posted",
     check_no_deadlock},
};

}  // namespace

namespace {

// What step i finds is what the one before leaves.
Status check_border(std::span<const Schedule> steps, size_t i) {
  const Schedule& before = steps[i - 1];
  const Schedule& after = steps[i];
  if (before.num_stages != after.num_stages || before.num_buckets != after.num_buckets ||
      before.num_micro_batches.size() != after.num_micro_batches.size() ||
      before.tied_groups != after.tied_groups || before.num_ahead != after.num_found ||
      before.num_tied_buckets != after.num_tied_buckets ||
      before.num_row_tables != after.num_row_tables ||
      before.communication != after.communication ||
      (before.clips_norm != after.clips_norm && !after.num_found.empty())) {
    return Error{fmt::format("step {} does not find what step {} leaves", i, i - 1)};
  }
  if (after.num_found.empty()) return Status();
  const ScheduleIndex first(before);
  const ScheduleIndex second(after);
  for (int32_t rank = 0; rank < first.num_ranks(); ++rank) {
    for (int32_t bucket = 0; bucket < first.num_indices(rank, ActionKind::kAllReduce); ++bucket) {
      const bool is_left = first.position(rank, {ActionKind::kAllReduce, bucket}) < 0;
      if (is_left == (second.position(rank, {ActionKind::kAllReduce, bucket, 0, -1}) >= 0))
        continue;
      return Error{fmt::format("rank {} reduces bucket {} of step {} {}", rank, bucket, i - 1,
                               is_left ? "never" : "twice")};
    }
  }
  return Status();
}

}  // namespace

std::span<const ScheduleRule> schedule_rules() { return kRules; }

Status verify_schedule(const Schedule& schedule) {
  const ScheduleIndex index(schedule);
  for (const ScheduleRule& rule : kRules) TRIREME_TRY(rule.check(index));
  return Status();
}

Status verify_run(std::span<const Schedule> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    Status status = verify_schedule(steps[i]);
    if (!status.ok()) return while_doing(fmt::format("step {}", i), status.error());
    if (i > 0) TRIREME_TRY(check_border(steps, i));
  }
  if (!steps.front().num_found.empty() || !steps.back().num_ahead.empty()) {
    return Error{"a run begins with nothing found and ends with nothing ahead"};
  }
  const Schedule run = unroll(steps);
  return check_no_deadlock(ScheduleIndex(run), steps);
}

Status verify_shape(const Schedule& schedule) { return check_shape(ScheduleIndex(schedule)); }

std::vector<int32_t> peak_in_flight(const Schedule& schedule, const InFlightWeights& weights) {
  using enum ActionKind;
  std::vector<int32_t> peaks;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& actions = schedule.ranks[rank];
    int32_t held = 0;
    if (!schedule.num_found.empty()) {
      held = weights.kept * schedule.num_found[rank % static_cast<size_t>(schedule.num_stages)];
    }
    int32_t peak = held;
    for (const Action& action : actions) {
      if (action.kind == kForward) held += weights.kept;
      if (action.kind == kForwardKeepingInput) held += weights.kept_input;
      if (action.kind == kRecompute) held += weights.kept - weights.kept_input;
      peak = std::max(peak, held);
      // An evaluation keeps nothing for a backward.
      if (action.kind == kForward && !schedule.is_training) held -= weights.kept;
      if (action.kind == kBackward) held -= weights.kept;
      if (action.kind == kInputGradient) held += weights.deferred - weights.kept;
      if (action.kind == kWeightGradient) held -= weights.deferred;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace trireme
