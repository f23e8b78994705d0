#include "trireme/schedule/peers.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

ActionKind opposite(ActionKind kind) {
  switch (kind) {
    case ActionKind::kSendActivation:
      return ActionKind::kReceiveActivation;
    case ActionKind::kReceiveActivation:
      return ActionKind::kSendActivation;
    case ActionKind::kSendGradient:
      return ActionKind::kReceiveGradient;
    default:
      return ActionKind::kSendGradient;
  }
}

std::string meaning(const Schedule& schedule, int32_t rank, const Action& action) {
  const std::string micro_batch =
      action.chunk == 0 ? fmt::format("micro-batch {}", action.index)
                        : fmt::format("micro-batch {}, chunk {}", action.index, action.chunk);
  const std::optional<Counterpart> other = counterpart(schedule, rank, action);
  const int32_t peer = other ? other->rank : -1;
  switch (action.kind) {
    case ActionKind::kForward:
      return "forward of " + micro_batch;
    case ActionKind::kForwardKeepingInput:
      return "forward of " + micro_batch + " that keeps its input";
    case ActionKind::kRecompute:
      return "recomputation of " + micro_batch;
    case ActionKind::kBackward:
      return "backward of " + micro_batch;
    case ActionKind::kInputGradient:
      return "input gradients of " + micro_batch;
    case ActionKind::kWeightGradient:
      return "weight gradients of " + micro_batch;
    case ActionKind::kUpdate:
      return "update of the weights";
    case ActionKind::kSendActivation:
      return fmt::format("activations of {} to rank {}", micro_batch, peer);
    case ActionKind::kReceiveActivation:
      return fmt::format("activations of {} from rank {}", micro_batch, peer);
    case ActionKind::kSendGradient:
      return fmt::format("gradients of {} to rank {}", micro_batch, peer);
    case ActionKind::kReceiveGradient:
      return fmt::format("gradients of {} from rank {}", micro_batch, peer);
    case ActionKind::kAllReduce:
      return fmt::format("gradient bucket {} over ranks {}", action.index,
                         fmt::join(members(schedule, rank, action), ", "));
    case ActionKind::kTiedReduce:
      return fmt::format("tied gradients of group {} over ranks {}", action.index,
                         fmt::join(members(schedule, rank, action), ", "));
    case ActionKind::kScalars:
      return action.index == static_cast<int32_t>(ScalarExchange::kLosses)
                 ? "losses and item counts of all ranks"
                 : "squared gradient norms of all ranks";
    case ActionKind::kRowExchange: {
      const std::string over =
          fmt::format("over ranks {}", fmt::join(members(schedule, rank, action), ", "));
      if (action.index == static_cast<int32_t>(RowExchangeStep::kCounts)) {
        return "numbers of rows that were read, " + over;
      }
      if (action.index == static_cast<int32_t>(RowExchangeStep::kIds)) {
        return "rows that were read, " + over;
      }
      return fmt::format("gradient rows of table {} {}", action.index - sum_of_row_table(0), over);
    }
  }
  return "";
}

}  // namespace

int32_t num_ranks(const Schedule& schedule) {
  return schedule.num_stages * static_cast<int32_t>(schedule.num_micro_batches.size());
}

int32_t stage_of(const Schedule& schedule, int32_t rank) { return rank % schedule.num_stages; }

int32_t replica_of(const Schedule& schedule, int32_t rank) { return rank / schedule.num_stages; }

int32_t virtual_stage_of(const Schedule& schedule, int32_t rank, int32_t chunk) {
  return chunk * schedule.num_stages + place_within_chunk(schedule.placement, schedule.num_stages,
                                                          chunk, stage_of(schedule, rank));
}

int32_t num_row_tables(const Schedule& schedule, int32_t stage) {
  return schedule.num_row_tables.empty() ? 0 : schedule.num_row_tables[static_cast<size_t>(stage)];
}

bool holds_tied_group(const Schedule& schedule, int32_t stage) {
  return std::ranges::any_of(schedule.tied_groups, [stage](const std::vector<int32_t>& stages) {
    return std::ranges::binary_search(stages, stage);
  });
}

int32_t num_free_buckets(const Schedule& schedule, int32_t stage) {
  const int32_t count = schedule.num_buckets[static_cast<size_t>(stage)];
  if (!schedule.num_tied_buckets.empty()) {
    return count - schedule.num_tied_buckets[static_cast<size_t>(stage)];
  }
  return holds_tied_group(schedule, stage) ? 0 : count;
}

std::optional<ChunkPlace> place_of(const Schedule& schedule, int32_t rank, int32_t virtual_stage) {
  if (virtual_stage < 0 || virtual_stage >= schedule.num_stages * schedule.num_chunks) {
    return std::nullopt;
  }
  const int32_t chunk = virtual_stage / schedule.num_stages;
  return ChunkPlace{.rank = rank - stage_of(schedule, rank) +
                            place_within_chunk(schedule.placement, schedule.num_stages, chunk,
                                               virtual_stage % schedule.num_stages),
                    .chunk = chunk};
}

bool is_first_virtual_stage(const Schedule& schedule, int32_t rank, int32_t chunk) {
  return virtual_stage_of(schedule, rank, chunk) == 0;
}

bool is_last_virtual_stage(const Schedule& schedule, int32_t rank, int32_t chunk) {
  return virtual_stage_of(schedule, rank, chunk) == schedule.num_stages * schedule.num_chunks - 1;
}

std::optional<Counterpart> counterpart(const Schedule& schedule, int32_t rank,
                                       const Action& action) {
  if (!is_send(action.kind) && !is_receive(action.kind)) return std::nullopt;
  const bool goes_to_next =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveGradient;
  const int32_t virtual_stage = virtual_stage_of(schedule, rank, action.chunk);
  const std::optional<ChunkPlace> other =
      place_of(schedule, rank, virtual_stage + (goes_to_next ? 1 : -1));
  if (!other || other->rank == rank) return std::nullopt;
  return Counterpart{.rank = other->rank,
                     .action = {opposite(action.kind), action.index, other->chunk, action.batch}};
}

Counterpart other_side(const Schedule& schedule, int32_t rank, const Action& action) {
  const std::optional<Counterpart> other = counterpart(schedule, rank, action);
  TRIREME_CHECK(other.has_value(), to_text(action) + " has no other side");
  return other.value_or(Counterpart());
}

std::vector<int32_t> members(const Schedule& schedule, int32_t rank, const Action& action) {
  std::vector<int32_t> ranks;
  const int32_t first_of_replica = rank - stage_of(schedule, rank);
  if (action.kind == ActionKind::kAllReduce || action.kind == ActionKind::kRowExchange) {
    for (int32_t other = stage_of(schedule, rank); other < num_ranks(schedule);
         other += schedule.num_stages) {
      ranks.push_back(other);
    }
  } else if (action.kind == ActionKind::kTiedReduce) {
    for (int32_t stage : schedule.tied_groups[static_cast<size_t>(action.index)]) {
      ranks.push_back(first_of_replica + stage);
    }
  } else if (action.kind == ActionKind::kScalars) {
    for (int32_t other = 0; other < num_ranks(schedule); ++other) ranks.push_back(other);
  }
  return ranks;
}

std::string describe(const Schedule& schedule, int32_t rank, const Action& action) {
  const std::string_view batch = action.batch < 0   ? ", of the step before"
                                 : action.batch > 0 ? ", of the next step"
                                                    : "";
  return fmt::format("{} ({}{})", to_text(action), meaning(schedule, rank, action), batch);
}

}  // namespace trireme
