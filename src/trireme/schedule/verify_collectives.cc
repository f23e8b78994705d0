// Rules about collectives and the update.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

using enum ActionKind;

constexpr Action kLossesAction{kScalars, static_cast<int32_t>(ScalarExchange::kLosses)};
constexpr Action kLateNorms{kScalars, static_cast<int32_t>(ScalarExchange::kSquaredNorms), 0, -1};
constexpr Action kLateUpdate{kUpdate, 0, 0, -1};
constexpr Action kNormsAction{kScalars, static_cast<int32_t>(ScalarExchange::kSquaredNorms)};

// What makes gradients of weights.
constexpr std::initializer_list<ActionKind> kBackwards = {kBackward, kInputGradient,
                                                          kWeightGradient};

bool holds_group(const Schedule& schedule, int32_t rank, int32_t group) {
  const auto& stages = schedule.tied_groups[static_cast<size_t>(group)];
  return std::ranges::binary_search(stages, stage_of(schedule, rank));
}

// `action` is listed, and after the last action of the kinds `before`.
Status check_listed_after(const ScheduleIndex& index, int32_t rank, const Action& action,
                          std::initializer_list<ActionKind> before) {
  const int32_t position = index.position(rank, action);
  if (position < 0) {
    return Error{fmt::format("rank {} misses {}", rank, describe(index.schedule(), rank, action))};
  }
  const int32_t last = index.last_position(rank, before);
  if (position > last) return Status();
  return Error{fmt::format("rank {} issues {} before {}", rank, to_text(action),
                           to_text(index.actions(rank)[static_cast<size_t>(last)]))};
}

std::vector<Action> actions_of_kind(const ScheduleIndex& index, int32_t rank, ActionKind kind) {
  std::vector<Action> actions;
  for (const Action& action : index.actions(rank)) {
    if (action.kind == kind) actions.push_back(action);
  }
  return actions;
}

// `action`, of the batch before, comes after all AR of that batch.
Status check_late_order(const ScheduleIndex& index, int32_t rank, const Action& action) {
  const int32_t position = index.position(rank, action);
  for (const Action& bucket : actions_of_kind(index, rank, kAllReduce)) {
    if (position < 0 || bucket.batch == 0 || index.position(rank, bucket) < position) continue;
    return Error{
        fmt::format("rank {} issues {} before {}", rank, to_text(action), to_text(bucket))};
  }
  return Status();
}

}  // namespace

Status check_losses(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    TRIREME_TRY(check_listed_after(index, rank, kLossesAction, {kForward, kForwardKeepingInput}));
  }
  return Status();
}

Status check_tied_reductions(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (int32_t group = 0; group < index.num_indices(rank, kTiedReduce); ++group) {
      if (!holds_group(index.schedule(), rank, group)) continue;
      TRIREME_TRY(check_listed_after(index, rank, Action{kTiedReduce, group}, kBackwards));
    }
  }
  return Status();
}

Status check_bucket_reductions(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (int32_t bucket = 0; bucket < index.num_indices(rank, kAllReduce); ++bucket) {
      const Action now{kAllReduce, bucket};
      const Action late{kAllReduce, bucket, 0, -1};
      // Its turn comes in this step or in the next.
      const bool is_left = index.leaves_update() && index.position(rank, now) < 0;
      if (!is_left) TRIREME_TRY(check_listed_after(index, rank, now, kBackwards));
      if (!index.has_late_update() || !index.leaves_update()) continue;
      if (is_left == (index.position(rank, late) >= 0)) continue;
      return Error{fmt::format("rank {} lists {} {} and {}: of a step between others one comes",
                               rank, is_left ? "neither" : "both", to_text(now), to_text(late))};
    }
  }
  return Status();
}

Status check_tied_before_buckets(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (const Action& bucket : actions_of_kind(index, rank, kAllReduce)) {
      if (bucket.batch != 0) continue;
      if (bucket.index < num_free_buckets(index.schedule(), stage_of(index.schedule(), rank))) {
        continue;
      }
      TRIREME_TRY(check_listed_after(index, rank, bucket, {kTiedReduce}));
    }
  }
  return Status();
}

Status check_row_exchanges(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  constexpr Action kCounts{kRowExchange, static_cast<int32_t>(RowExchangeStep::kCounts)};
  constexpr Action kIds{kRowExchange, static_cast<int32_t>(RowExchangeStep::kIds)};
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    const int32_t count = index.num_indices(rank, kRowExchange);
    if (count == 0) continue;
    TRIREME_TRY(check_listed_after(index, rank, kCounts, {kForward, kForwardKeepingInput}));
    for (int32_t exchange = kIds.index; exchange < count; ++exchange) {
      const Action action{kRowExchange, exchange};
      const bool is_sum = action != kIds;
      if (is_sum) TRIREME_TRY(check_listed_after(index, rank, action, kBackwards));
      TRIREME_TRY(check_listed_after(index, rank, action, {}));
      const Action before = is_sum ? kIds : kCounts;
      if (index.position(rank, action) > index.position(rank, before)) continue;
      return Error{
          fmt::format("rank {} issues {} before {}", rank, to_text(action), to_text(before))};
    }
  }
  return Status();
}

Status check_norms(const ScheduleIndex& index) {
  const Schedule& schedule = index.schedule();
  if (!schedule.is_training) return Status();
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    if (index.has_late_update()) {
      const int32_t late = index.position(rank, kLateNorms);
      if (schedule.clips_norm != (late >= 0)) {
        return Error{schedule.clips_norm
                         ? fmt::format("rank {} misses SC1-, which clips the batch before", rank)
                         : fmt::format("rank {} lists SC1-, but the schedule does not clip", rank)};
      }
      TRIREME_TRY(check_late_order(index, rank, kLateNorms));
    }
    const int32_t position = index.position(rank, kNormsAction);
    if (!schedule.clips_norm || index.leaves_update()) {
      if (position < 0) continue;
      return Error{fmt::format("rank {} lists SC1, but {}", rank,
                               schedule.clips_norm ? "leaves its update to the next step"
                                                   : "the schedule does not clip")};
    }
    TRIREME_TRY(check_listed_after(index, rank, kNormsAction, {kAllReduce}));
    TRIREME_TRY(check_listed_after(index, rank, kNormsAction, {kTiedReduce}));
    TRIREME_TRY(check_listed_after(index, rank, kNormsAction, {kRowExchange}));
    // The norm is that of gradients divided by the number of items, which SC0 brings.
    if (position < index.position(rank, kLossesAction)) {
      return Error{fmt::format("rank {} issues SC1 before SC0", rank)};
    }
  }
  return Status();
}

Status check_collective_order(const ScheduleIndex& index) {
  for (ActionKind kind : {kAllReduce, kScalars, kRowExchange}) {
    for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
      const std::vector<Action> actions = actions_of_kind(index, rank, kind);
      // The first member's order is the measure. A tied group has a communicator of its own, so TR
      // has no order to keep.
      const int32_t leader = kind == kScalars ? 0 : stage_of(index.schedule(), rank);
      const std::vector<Action> expected = actions_of_kind(index, leader, kind);
      const auto [found, wanted] = std::ranges::mismatch(actions, expected);
      if (found == actions.end() || wanted == expected.end()) continue;
      return Error{fmt::format("rank {} issues {} where rank {} issues {}", rank, to_text(*found),
                               leader, to_text(*wanted))};
    }
  }
  return Status();
}

namespace {

// With two versions a batch sees what the batches before the last have made, whenever its own and
// the next update come: only what runs ahead must wait for an update, which is that of the batch
// before.
Status check_two_versions(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks() && index.has_late_update(); ++rank) {
    const int32_t update = index.position(rank, kLateUpdate);
    for (const Action& action : index.actions(rank)) {
      if (!is_forward(action.kind) || action.batch != 1) continue;
      if (update >= 0 && update < index.position(rank, action)) continue;
      return Error{
          fmt::format("rank {} runs {} before U-, which makes its weights", rank, to_text(action))};
    }
  }
  return Status();
}

}  // namespace

Status check_one_weight_version(const ScheduleIndex& index) {
  if (index.schedule().num_weight_versions == 2) return check_two_versions(index);
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    const int32_t update = index.last_position(rank, {kUpdate});
    if (update < 0) continue;
    for (const Action& forward : index.actions(rank)) {
      if (!is_forward(forward.kind)) continue;
      const Action backward = index.backward_end(rank, forward.index, forward.chunk);
      if (index.position(rank, forward) > update || index.position(rank, backward) < update) {
        continue;
      }
      return Error{fmt::format("rank {} runs U between {} and {}, which must see the same weights",
                               rank, to_text(forward), to_text(backward))};
    }
  }
  return Status();
}

Status check_update(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    const std::vector<Action>& actions = index.actions(rank);
    if (index.has_late_update()) {
      const int32_t late = index.position(rank, kLateUpdate);
      const int32_t norms = index.schedule().clips_norm ? index.position(rank, kLateNorms) : -1;
      if (late < 0 || late < norms) {
        return Error{late < 0 ? fmt::format("rank {} misses {}", rank,
                                            describe(index.schedule(), rank, kLateUpdate))
                              : fmt::format("rank {} runs U- before SC1-", rank)};
      }
      TRIREME_TRY(check_late_order(index, rank, kLateUpdate));
    }
    const int32_t update = index.last_position(rank, {kUpdate});
    if (index.leaves_update()) {
      if (update < 0) continue;
      return Error{fmt::format("rank {} lists U, which ahead= leaves to the next step", rank)};
    }
    if (update < 0) {
      return Error{fmt::format("rank {} misses {}", rank,
                               describe(index.schedule(), rank, Action{kUpdate}))};
    }
    if (update + 1 == static_cast<int32_t>(actions.size())) continue;
    return Error{fmt::format("rank {} runs {} after U, which must come last", rank,
                             to_text(actions[static_cast<size_t>(update) + 1]))};
  }
  return Status();
}

}  // namespace trireme
