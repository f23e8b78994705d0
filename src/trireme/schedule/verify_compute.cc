// Rules about the order of compute actions.
#include <fmt/format.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

using enum ActionKind;

std::string micro_batch_text(const ScheduleIndex& index, const Action& action) {
  return index.schedule().num_chunks == 1
             ? fmt::format("micro-batch {}", action.index)
             : fmt::format("micro-batch {}, chunk {}", action.index, action.chunk);
}

int32_t count_forwards(const ScheduleIndex& index, int32_t rank) {
  int32_t count = 0;
  for (const Action& action : index.actions(rank)) count += is_forward(action.kind) ? 1 : 0;
  return count;
}

bool is_listed(const ScheduleIndex& index, int32_t rank, const Action& action) {
  return index.position(rank, action) >= 0;
}

Status check_first_before(const ScheduleIndex& index, int32_t rank, const Action& first,
                          const Action& second) {
  if (index.position(rank, first) < index.position(rank, second)) return Status();
  return Error{fmt::format("rank {} runs {} before {}", rank, to_text(second), to_text(first))};
}

}  // namespace

Status check_forwards(const ScheduleIndex& index) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Action ahead{kForward, micro_batch, chunk, 1};
        if (micro_batch < index.num_ahead(rank) && !is_listed(index, rank, ahead)) {
          return Error{
              fmt::format("rank {} misses {}, which ahead= promises", rank, to_text(ahead))};
        }
        const Action forward = index.forward(rank, micro_batch, chunk);
        if (micro_batch < index.num_found(rank) || is_listed(index, rank, forward)) {
          return Status();
        }
        return Error{fmt::format("rank {} misses the forward of {} ({} of {} forwards seen)", rank,
                                 micro_batch_text(index, forward), count_forwards(index, rank),
                                 index.num_micro_batches(rank) * index.schedule().num_chunks)};
      });
}

Status check_backwards(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Action backward{kBackward, micro_batch, chunk};
        const bool has_input = is_listed(index, rank, {kInputGradient, micro_batch, chunk});
        const bool has_weight = is_listed(index, rank, {kWeightGradient, micro_batch, chunk});
        if (has_input != has_weight) {
          return Error{fmt::format("rank {} misses {} of {}", rank, has_input ? 'W' : 'I',
                                   micro_batch_text(index, backward))};
        }
        if (has_input || is_listed(index, rank, backward)) return Status();
        return (
            Error{fmt::format("rank {} misses the backward of {} ({} of {} forwards seen)", rank,
                              micro_batch_text(index, backward), count_forwards(index, rank),
                              index.num_micro_batches(rank) * index.schedule().num_chunks)});
      });
}

Status check_one_of_a_kind(const ScheduleIndex& index) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        for (const auto& [whole, other] :
             {std::pair(kForward, kForwardKeepingInput), std::pair(kBackward, kInputGradient)}) {
          const Action first{whole, micro_batch, chunk};
          const Action second{other, micro_batch, chunk};
          if (!is_listed(index, rank, first) || !is_listed(index, rank, second)) continue;
          return Error{fmt::format("rank {} lists both {} and {}, which do the same work", rank,
                                   to_text(first), to_text(second))};
        }
        return Status();
      });
}

Status check_recomputations(const ScheduleIndex& index) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Action forward = index.forward(rank, micro_batch, chunk);
        const Action recompute{kRecompute, micro_batch, chunk};
        const bool keeps_input = forward.kind == kForwardKeepingInput;
        if (keeps_input == is_listed(index, rank, recompute)) return Status();
        return Error{keeps_input
                         ? fmt::format("rank {} lists {} without {}, which its backward needs",
                                       rank, to_text(forward), to_text(recompute))
                         : fmt::format("rank {} lists {}, but {} keeps what it would make", rank,
                                       to_text(recompute), to_text(forward))};
      });
}

Status check_forward_before_backward(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        return check_first_before(index, rank, index.forward(rank, micro_batch, chunk),
                                  index.gradient_taker(rank, micro_batch, chunk));
      });
}

Status check_recompute_between(const ScheduleIndex& index) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Action recompute{kRecompute, micro_batch, chunk};
        if (!is_listed(index, rank, recompute)) return Status();
        TRIREME_TRY(
            check_first_before(index, rank, index.forward(rank, micro_batch, chunk), recompute));
        return check_first_before(index, rank, recompute,
                                  index.gradient_taker(rank, micro_batch, chunk));
      });
}

Status check_weights_after_inputs(const ScheduleIndex& index) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Action weight{kWeightGradient, micro_batch, chunk};
        if (!is_listed(index, rank, weight)) return Status();
        return check_first_before(index, rank, {kInputGradient, micro_batch, chunk}, weight);
      });
}

Status check_chunks_in_order(const ScheduleIndex& index) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Schedule& schedule = index.schedule();
        const auto next = place_of(schedule, rank, virtual_stage_of(schedule, rank, chunk) + 1);
        if (!next || next->rank != rank) return Status();
        TRIREME_TRY(check_first_before(index, rank, index.forward(rank, micro_batch, chunk),
                                       index.forward(rank, micro_batch, next->chunk)));
        if (!schedule.is_training) return Status();
        return check_first_before(index, rank, index.gradient_taker(rank, micro_batch, next->chunk),
                                  index.gradient_taker(rank, micro_batch, chunk));
      });
}

}  // namespace trireme
