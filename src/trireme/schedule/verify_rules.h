// The rules behind verify_schedule, as one list. A rule may assume that all rules above it hold;
// so each tells one thing, and its test breaks it alone.
//
// Positions count from 0 within a rank's list.
#pragma once

#include <array>
#include <cstdint>
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
  // How many indices a kind has on a rank: micro-batches, buckets of the stage, tied groups, 2 for
  // SC, 1 for U.
  [[nodiscard]] int32_t num_indices(int32_t rank, ActionKind kind) const;
  [[nodiscard]] bool is_in_range(int32_t rank, const Action& action) const;

  // The position of the first such action, or -1. REQUIRES: is_in_range().
  [[nodiscard]] int32_t position(int32_t rank, const Action& action) const;
  // The largest position of an action of this kind, or -1.
  [[nodiscard]] int32_t last_position(int32_t rank, ActionKind kind) const;

 private:
  struct Kind {
    std::vector<int32_t> positions;  // by index * num_chunks + chunk
    int32_t last = -1;
  };
  using Rank = std::array<Kind, kNumActionKinds>;
  [[nodiscard]] size_t slot(const Action& action) const;

  const Schedule& schedule_;
  std::vector<Rank> ranks_;
};

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
Status check_once(const ScheduleIndex& index);
// verify_order.cc
Status check_forwards(const ScheduleIndex& index);
Status check_backwards(const ScheduleIndex& index);
Status check_forward_before_backward(const ScheduleIndex& index);
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
Status check_norms(const ScheduleIndex& index);
Status check_collective_order(const ScheduleIndex& index);
Status check_one_weight_version(const ScheduleIndex& index);
Status check_update(const ScheduleIndex& index);
// verify_deadlock.cc
Status check_no_deadlock(const ScheduleIndex& index);

}  // namespace trireme
