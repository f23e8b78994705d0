// Rules about one action at a time: sizes, ranges, and what may stand where.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

// 1 Mi: far above any cluster, far below what overflows or exhausts memory.
constexpr int32_t kMaxCount = 1 << 20;

Status check_counts(const Schedule& schedule) {
  int64_t total = 0;
  for (int32_t count : schedule.num_micro_batches) total += std::max(count, 0);
  if (schedule.num_stages < 1 || schedule.num_stages > kMaxCount || total < 1) {
    return Error{
        fmt::format("{} stages and {} micro-batches: a schedule needs 1 to {} stages and at "
                    "least 1 micro-batch",
                    schedule.num_stages, total, kMaxCount)};
  }
  for (size_t replica = 0; replica < schedule.num_micro_batches.size(); ++replica) {
    const int32_t count = schedule.num_micro_batches[replica];
    if (count < 0 || count > kMaxMicroBatches) {
      return Error{
          fmt::format("{} stages and {} micro-batches of replica {}: a replica has 0 to {}",
                      schedule.num_stages, count, replica, kMaxMicroBatches)};
    }
  }
  if (schedule.num_chunks < 1 || schedule.num_chunks > kMaxChunks) {
    return Error{
        fmt::format("{} chunks a rank: a rank has 1 to {}", schedule.num_chunks, kMaxChunks)};
  }
  if (schedule.look_ahead < 0) {
    return Error{fmt::format("look-ahead {}: it must be at least 0", schedule.look_ahead)};
  }
  return Status();
}

Status check_buckets(const Schedule& schedule) {
  if (schedule.num_buckets.size() != static_cast<size_t>(schedule.num_stages)) {
    return Error{fmt::format("{} bucket counts for {} stages", schedule.num_buckets.size(),
                             schedule.num_stages)};
  }
  for (size_t stage = 0; stage < schedule.num_buckets.size(); ++stage) {
    const int32_t count = schedule.num_buckets[stage];
    const int32_t max_count = schedule.num_micro_batches.size() == 1 ? 0 : kMaxCount;
    if (count < 0 || count > max_count) {
      return Error{
          fmt::format("stage {} has {} gradient buckets: with {} replicas there are 0 to {}", stage,
                      count, schedule.num_micro_batches.size(), max_count)};
    }
  }
  return Status();
}

Status check_tied_buckets(const Schedule& schedule) {
  if (schedule.num_tied_buckets.empty()) return Status();
  if (schedule.num_tied_buckets.size() != schedule.num_buckets.size()) {
    return Error{fmt::format("tied-buckets= has {} numbers for {} stages",
                             schedule.num_tied_buckets.size(), schedule.num_stages)};
  }
  for (int32_t stage = 0; stage < schedule.num_stages; ++stage) {
    const int32_t count = schedule.num_tied_buckets[static_cast<size_t>(stage)];
    const int32_t max_count =
        holds_tied_group(schedule, stage) ? schedule.num_buckets[static_cast<size_t>(stage)] : 0;
    if (count >= 0 && count <= max_count) continue;
    return Error{fmt::format("stage {} has {} tied buckets: of its {} there are 0 to {}", stage,
                             count, schedule.num_buckets[static_cast<size_t>(stage)], max_count)};
  }
  return Status();
}

Status check_row_tables(const Schedule& schedule) {
  if (schedule.num_row_tables.empty()) return Status();
  if (schedule.num_row_tables.size() != static_cast<size_t>(schedule.num_stages)) {
    return Error{fmt::format("row-tables= has {} numbers for {} stages",
                             schedule.num_row_tables.size(), schedule.num_stages)};
  }
  const int32_t max_count = schedule.num_micro_batches.size() == 1 ? 0 : kMaxCount;
  for (size_t stage = 0; stage < schedule.num_row_tables.size(); ++stage) {
    const int32_t count = schedule.num_row_tables[stage];
    if (count >= 0 && count <= max_count) continue;
    return Error{fmt::format("stage {} has {} row tables: with {} replicas there are 0 to {}",
                             stage, count, schedule.num_micro_batches.size(), max_count)};
  }
  return Status();
}

Status check_tied_groups(const Schedule& schedule) {
  for (size_t group = 0; group < schedule.tied_groups.size(); ++group) {
    const std::vector<int32_t>& stages = schedule.tied_groups[group];
    if (stages.size() < 2) {
      return Error{fmt::format("tied group {} has {} stages: a group is held by at least 2", group,
                               stages.size())};
    }
    if (std::ranges::adjacent_find(stages, std::ranges::greater_equal()) != stages.end()) {
      return Error{fmt::format("the stages of tied group {} are not in ascending order", group)};
    }
    if (stages.front() < 0 || stages.back() >= schedule.num_stages) {
      return Error{fmt::format("tied group {} names stage {}: stages are 0 to {}", group,
                               stages.front() < 0 ? stages.front() : stages.back(),
                               schedule.num_stages - 1)};
    }
  }
  return Status();
}

// What lies between a step and its neighbours is the same for all replicas, and a stage is as far
// ahead as the one after it, or further.
Status check_neighbours(const Schedule& schedule) {
  if (schedule.num_weight_versions < 1 || schedule.num_weight_versions > 2) {
    return Error{fmt::format("{} versions of the weights: a schedule keeps 1 or 2",
                             schedule.num_weight_versions)};
  }
  if (schedule.communication.updates_at_end && schedule.num_weight_versions != 2) {
    return Error{"updates-at-end is of schedules with versions=2, whose steps overlap"};
  }
  const int32_t fewest = std::ranges::min(schedule.num_micro_batches);
  for (const auto& [name, counts] :
       {std::pair("found", &schedule.num_found), std::pair("ahead", &schedule.num_ahead)}) {
    if (counts->empty()) continue;
    if (schedule.num_weight_versions != 2 || schedule.num_chunks != 1 || !schedule.is_training) {
      return Error{fmt::format("{}= is of training with versions=2 and one chunk a rank", name)};
    }
    if (counts->size() != static_cast<size_t>(schedule.num_stages)) {
      return Error{fmt::format("{}= has {} numbers for {} stages", name, counts->size(),
                               schedule.num_stages)};
    }
    if (std::ranges::adjacent_find(*counts, std::ranges::less()) != counts->end() ||
        counts->back() < 0 || counts->front() > fewest) {
      return Error{
          fmt::format("{}={}: a stage has {} to 0 of them, and no more than the one before", name,
                      fmt::join(*counts, ","), fewest)};
    }
  }
  return Status();
}

// What the index of a kind counts.
std::string_view counted_by(ActionKind kind) {
  switch (kind) {
    case ActionKind::kUpdate:
      return "updates";
    case ActionKind::kAllReduce:
      return "gradient buckets";
    case ActionKind::kTiedReduce:
      return "tied groups";
    case ActionKind::kRowExchange:
      return "row exchanges";
    case ActionKind::kScalars:
      return "scalar exchanges";
    default:
      return "micro-batches";
  }
}

std::string_view why_illegal(const ScheduleIndex& index, int32_t rank, const Action& action) {
  using enum ActionKind;
  const Schedule& schedule = index.schedule();
  const bool is_norms = action.kind == kScalars &&
                        action.index == static_cast<int32_t>(ScalarExchange::kSquaredNorms);
  const bool is_gradient = (is_compute(action.kind) && action.kind != kForward) ||
                           action.kind == kSendGradient || action.kind == kReceiveGradient ||
                           action.kind == kAllReduce || action.kind == kTiedReduce ||
                           action.kind == kRowExchange || is_norms;
  if (is_gradient && !schedule.is_training) return "an evaluation has no gradients";
  if (action.kind == kReceiveActivation || action.kind == kSendGradient) {
    if (is_first_virtual_stage(schedule, rank, action.chunk)) {
      return "nothing comes before the first stage";
    }
  }
  if (action.kind == kSendActivation || action.kind == kReceiveGradient) {
    if (is_last_virtual_stage(schedule, rank, action.chunk)) {
      return "nothing comes after the last stage";
    }
  }
  if ((is_send(action.kind) || is_receive(action.kind)) && !counterpart(schedule, rank, action)) {
    return "the chunk at the other side is on the same rank, where nothing is sent";
  }
  if (action.kind == kTiedReduce) {
    const auto& stages = schedule.tied_groups[static_cast<size_t>(action.index)];
    if (!std::ranges::binary_search(stages, stage_of(schedule, rank))) {
      return "its stage does not hold that tied group";
    }
  }
  return "";
}

}  // namespace

Status check_shape(const ScheduleIndex& index) {
  const Schedule& schedule = index.schedule();
  if (schedule.builder.empty() || schedule.builder.find_first_of(" \t\r\n") != std::string::npos) {
    return Error{
        fmt::format("the schedule's name {} is not one word", in_quotes(schedule.builder))};
  }
  TRIREME_TRY(check_counts(schedule));
  TRIREME_TRY(check_buckets(schedule));
  TRIREME_TRY(check_tied_buckets(schedule));
  TRIREME_TRY(check_row_tables(schedule));
  TRIREME_TRY(check_neighbours(schedule));
  return check_tied_groups(schedule);
}

Status check_ranks(const ScheduleIndex& index) {
  const Schedule& schedule = index.schedule();
  const size_t num_replicas = schedule.num_micro_batches.size();
  const size_t expected = num_replicas * static_cast<size_t>(schedule.num_stages);
  if (schedule.ranks.size() == expected) return Status();
  return Error{fmt::format("the number of ranks listed is {}: {} stages and {} replicas make {}",
                           schedule.ranks.size(), schedule.num_stages, num_replicas, expected)};
}

Status check_index_range(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (const Action& action : index.actions(rank)) {
      if (index.is_in_range(rank, action)) continue;
      if (action.batch > 0 && !index.is_followed()) {
        return Error{
            fmt::format("rank {} lists {}, but ahead= is not given", rank, to_text(action))};
      }
      if (action.batch < 0 && !index.follows_a_step()) {
        return Error{
            fmt::format("rank {} lists {}, but found= is not given", rank, to_text(action))};
      }
      const int32_t count = index.num_indices(rank, action.kind);
      const bool is_index = action.index < 0 || action.index >= count;
      return Error{fmt::format("rank {} lists {}, but its number of {} is {}", rank,
                               to_text(action), is_index ? counted_by(action.kind) : "chunks",
                               is_index ? count : index.schedule().num_chunks)};
    }
  }
  return Status();
}

Status check_legal_here(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (const Action& action : index.actions(rank)) {
      const std::string_view why = why_illegal(index, rank, action);
      if (why.empty()) continue;
      return Error{fmt::format("rank {} lists {}, but {}", rank, to_text(action), why)};
    }
  }
  return Status();
}

// What belongs to which step is a matter of found= and ahead=.
Status check_borders(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (const Action& action : index.actions(rank)) {
      const bool is_forward_or_transfer = action.kind == ActionKind::kForward ||
                                          action.kind == ActionKind::kSendActivation ||
                                          action.kind == ActionKind::kReceiveActivation;
      std::string_view why;
      if (action.batch == 0 && action.index < index.num_found(rank) &&
          (is_forward_or_transfer || action.kind == ActionKind::kForwardKeepingInput)) {
        why = "the step before has done it, as found= says";
      } else if (action.batch == 1 && !is_forward_or_transfer) {
        why = "only forwards run ahead";
      } else if (action.batch == 1 && action.index >= index.num_ahead(rank)) {
        why = "that is further than ahead= says";
      } else if (action.batch == -1 && action.kind != ActionKind::kAllReduce &&
                 action.kind != ActionKind::kUpdate &&
                 (action.kind != ActionKind::kScalars ||
                  action.index != static_cast<int32_t>(ScalarExchange::kSquaredNorms))) {
        why = "only AR, SC1 and U are left to the next step";
      } else if (action.batch == -1 && !index.has_late_update()) {
        why = "updates-at-end leaves nothing to the next step";
      } else {
        continue;
      }
      return Error{fmt::format("rank {} lists {}, but {}", rank, to_text(action), why)};
    }
  }
  return Status();
}

Status check_once(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    int32_t position = -1;
    for (const Action& action : index.actions(rank)) {
      ++position;
      const int32_t first = index.position(rank, action);
      if (first == position) continue;
      return Error{fmt::format("rank {} lists {} twice, at positions {} and {}", rank,
                               to_text(action), first, position)};
    }
  }
  return Status();
}

}  // namespace trireme
