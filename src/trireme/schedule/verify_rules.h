// The rules behind verify_schedule, as one list. A rule may assume that all rules above it hold;
// so each tells one thing, and its test breaks it alone.
//
// Positions count from 0 within a rank's list.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// Where each action stands. Actions whose numbers are out of range are left out, and nothing is
// indexed when the shape is wrong.
class ScheduleIndex {
 public:
  // The schedule must outlive the index.
  explicit ScheduleIndex(const Schedule& schedule);

  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] int32_t num_ranks() const { return static_cast<int32_t>(ranks_.size()); }
  [[nodiscard]] const std::vector<Action>& actions(int32_t rank) const {
    return schedule_.ranks[static_cast<size_t>(rank)];
  }
  [[nodiscard]] int32_t num_micro_batches(int32_t rank) const;
  // Forwards of its batch that the step finds done on the rank, and of the next batch that it runs.
  [[nodiscard]] int32_t num_found(int32_t rank) const;
  [[nodiscard]] int32_t num_ahead(int32_t rank) const;
  // Whether the step finds passes of its batch done, and does some of the next one.
  [[nodiscard]] bool follows_a_step() const { return !schedule_.num_found.empty(); }
  [[nodiscard]] bool is_followed() const { return !schedule_.num_ahead.empty(); }
  // Whether the step has the update of the batch before, and leaves its own to the next step.
  [[nodiscard]] bool has_late_update() const {
    return follows_a_step() && !schedule_.communication.updates_at_end;
  }
  [[nodiscard]] bool leaves_update() const {
    return is_followed() && !schedule_.communication.updates_at_end;
  }
  // How many indices a kind has on a rank: micro-batches, buckets of the stage, tied groups, 2 for
  // SC, 1 for U.
  [[nodiscard]] int32_t num_indices(int32_t rank, ActionKind kind) const;
  [[nodiscard]] bool is_in_range(int32_t rank, const Action& action) const;

  // The position of the first such action, or -1. REQUIRES: is_in_range().
  [[nodiscard]] int32_t position(int32_t rank, const Action& action) const;
  // The largest position of an action of these kinds of the step's own batch, or -1.
  [[nodiscard]] int32_t last_position(int32_t rank, std::initializer_list<ActionKind> kinds) const;
  // Of one micro-batch of the step's own batch and chunk: the forward (Fc where that is listed,
  // else F), what takes the gradient of its output (I, else B), and what ends its backward (W, else
  // B).
  [[nodiscard]] Action forward(int32_t rank, int32_t micro_batch, int32_t chunk) const;
  [[nodiscard]] Action gradient_taker(int32_t rank, int32_t micro_batch, int32_t chunk) const;
  [[nodiscard]] Action backward_end(int32_t rank, int32_t micro_batch, int32_t chunk) const;

 private:
  struct Kind {
    std::vector<int32_t> positions;  // by (batch, index, chunk); see slot()
    int32_t last = -1;
  };
  using Rank = std::array<Kind, kNumActionKinds>;
  [[nodiscard]] size_t slot(int32_t rank, const Action& action) const;
  // `preferred` where it is listed, else `other`, of one micro-batch and chunk.
  [[nodiscard]] Action listed(int32_t rank, ActionKind preferred, ActionKind other,
                              int32_t micro_batch, int32_t chunk) const;

  const Schedule& schedule_;
  int32_t first_batch_ = 0;
  int32_t last_batch_ = 0;
  std::vector<Rank> ranks_;
};

// Calls check(rank, micro-batch, chunk) for all, until one fails.
template <typename Check>
Status for_each_micro_batch(const ScheduleIndex& index, Check check) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (int32_t micro_batch = 0; micro_batch < index.num_micro_batches(rank); ++micro_batch) {
      for (int32_t chunk = 0; chunk < index.schedule().num_chunks; ++chunk) {
        TRIREME_TRY(check(rank, micro_batch, chunk));
      }
    }
  }
  return Status();
}

struct ScheduleRule {
  std::string_view name;
  std::string_view what;  // one line for the documentation
  Status (*check)(const ScheduleIndex& index);
};

[[nodiscard]] std::span<const ScheduleRule> schedule_rules();

// verify_structure.cc
Status check_shape(const ScheduleIndex& index);
Status check_ranks(const ScheduleIndex& index);
Status check_index_range(const ScheduleIndex& index);
Status check_legal_here(const ScheduleIndex& index);
Status check_borders(const ScheduleIndex& index);
Status check_once(const ScheduleIndex& index);
// verify_compute.cc
Status check_forwards(const ScheduleIndex& index);
Status check_backwards(const ScheduleIndex& index);
Status check_one_of_a_kind(const ScheduleIndex& index);
Status check_recomputations(const ScheduleIndex& index);
Status check_forward_before_backward(const ScheduleIndex& index);
Status check_recompute_between(const ScheduleIndex& index);
Status check_weights_after_inputs(const ScheduleIndex& index);
Status check_chunks_in_order(const ScheduleIndex& index);
// verify_transfers.cc
Status check_transfers_match(const ScheduleIndex& index);
Status check_receive_before_forward(const ScheduleIndex& index);
Status check_send_after_forward(const ScheduleIndex& index);
Status check_receive_before_backward(const ScheduleIndex& index);
Status check_send_after_backward(const ScheduleIndex& index);
Status check_transfer_order(const ScheduleIndex& index);
// verify_collectives.cc
Status check_losses(const ScheduleIndex& index);
Status check_tied_reductions(const ScheduleIndex& index);
Status check_bucket_reductions(const ScheduleIndex& index);
Status check_tied_before_buckets(const ScheduleIndex& index);
Status check_row_exchanges(const ScheduleIndex& index);
Status check_norms(const ScheduleIndex& index);
Status check_collective_order(const ScheduleIndex& index);
Status check_one_weight_version(const ScheduleIndex& index);
Status check_update(const ScheduleIndex& index);
// verify_deadlock.cc
Status check_no_deadlock(const ScheduleIndex& index);
// Of several steps as one (unroll.h), each with its own look-ahead.
Status check_no_deadlock(const ScheduleIndex& run, std::span<const Schedule> steps);

}  // namespace trireme
