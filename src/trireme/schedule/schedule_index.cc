#include <algorithm>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {

ScheduleIndex::ScheduleIndex(const Schedule& schedule) : schedule_(schedule) {
  if (!check_shape(*this).ok() || !check_ranks(*this).ok()) return;
  if (follows_a_step()) first_batch_ = -1;
  last_batch_ = schedule.num_steps - (is_followed() ? 0 : 1);
  ranks_.resize(schedule.ranks.size());
  for (int32_t rank = 0; rank < num_ranks(); ++rank) {
    Rank& kinds = ranks_[static_cast<size_t>(rank)];
    for (int32_t kind = 0; kind < kNumActionKinds; ++kind) {
      const int64_t slots = int64_t{last_batch_ - first_batch_ + 1} *
                            num_indices(rank, static_cast<ActionKind>(kind)) * schedule.num_chunks;
      kinds[static_cast<size_t>(kind)].positions.assign(static_cast<size_t>(slots), -1);
    }
    int32_t position = -1;
    for (const Action& action : actions(rank)) {
      ++position;
      if (!is_in_range(rank, action)) continue;
      Kind& kind = kinds[static_cast<size_t>(action.kind)];
      int32_t& first = kind.positions[slot(rank, action)];
      if (first < 0) first = position;
      if (action.batch == 0) kind.last = position;
    }
  }
}

size_t ScheduleIndex::slot(int32_t rank, const Action& action) const {
  const auto batch = static_cast<size_t>(action.batch - first_batch_);
  const size_t index = batch * static_cast<size_t>(num_indices(rank, action.kind)) +
                       static_cast<size_t>(action.index);
  return index * static_cast<size_t>(schedule_.num_chunks) + static_cast<size_t>(action.chunk);
}

int32_t ScheduleIndex::num_found(int32_t rank) const {
  return follows_a_step() ? schedule_.num_found[static_cast<size_t>(stage_of(schedule_, rank))] : 0;
}

int32_t ScheduleIndex::num_ahead(int32_t rank) const {
  return is_followed() ? schedule_.num_ahead[static_cast<size_t>(stage_of(schedule_, rank))] : 0;
}

int32_t ScheduleIndex::num_micro_batches(int32_t rank) const {
  return schedule_.num_micro_batches[static_cast<size_t>(replica_of(schedule_, rank))];
}

int32_t ScheduleIndex::num_indices(int32_t rank, ActionKind kind) const {
  switch (kind) {
    case ActionKind::kUpdate:
      return 1;
    case ActionKind::kScalars:
      return 2;
    case ActionKind::kTiedReduce:
      return static_cast<int32_t>(schedule_.tied_groups.size());
    case ActionKind::kRowExchange: {
      const int32_t tables = num_row_tables(schedule_, stage_of(schedule_, rank));
      return tables == 0 ? 0 : sum_of_row_table(tables);
    }
    case ActionKind::kAllReduce:
      return schedule_.num_buckets[static_cast<size_t>(stage_of(schedule_, rank))];
    default:
      return num_micro_batches(rank);
  }
}

bool ScheduleIndex::is_in_range(int32_t rank, const Action& action) const {
  const int32_t num_chunks = has_micro_batch(action.kind) ? schedule_.num_chunks : 1;
  return action.batch >= first_batch_ && action.batch <= last_batch_ && action.index >= 0 &&
         action.index < num_indices(rank, action.kind) && action.chunk >= 0 &&
         action.chunk < num_chunks;
}

int32_t ScheduleIndex::position(int32_t rank, const Action& action) const {
  return ranks_[static_cast<size_t>(rank)][static_cast<size_t>(action.kind)]
      .positions[slot(rank, action)];
}

int32_t ScheduleIndex::last_position(int32_t rank, std::initializer_list<ActionKind> kinds) const {
  int32_t last = -1;
  for (ActionKind kind : kinds) {
    last = std::max(last, ranks_[static_cast<size_t>(rank)][static_cast<size_t>(kind)].last);
  }
  return last;
}

Action ScheduleIndex::listed(int32_t rank, ActionKind preferred, ActionKind other,
                             int32_t micro_batch, int32_t chunk) const {
  const Action action{preferred, micro_batch, chunk};
  return position(rank, action) >= 0 ? action : Action{other, micro_batch, chunk};
}

Action ScheduleIndex::forward(int32_t rank, int32_t micro_batch, int32_t chunk) const {
  return listed(rank, ActionKind::kForwardKeepingInput, ActionKind::kForward, micro_batch, chunk);
}

Action ScheduleIndex::gradient_taker(int32_t rank, int32_t micro_batch, int32_t chunk) const {
  return listed(rank, ActionKind::kInputGradient, ActionKind::kBackward, micro_batch, chunk);
}

Action ScheduleIndex::backward_end(int32_t rank, int32_t micro_batch, int32_t chunk) const {
  return listed(rank, ActionKind::kWeightGradient, ActionKind::kBackward, micro_batch, chunk);
}

}  // namespace trireme
