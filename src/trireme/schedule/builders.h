// The table of pipeline schedules: one row a builder, one file a builder in builders/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

struct ScheduleOptions {
  int32_t num_stages = 1;
  std::vector<int32_t> num_micro_batches = {};         // of each replica
  std::vector<std::vector<int32_t>> tied_groups = {};  // see Schedule
  std::vector<int32_t> num_buckets = {};               // see Schedule; empty: 0 for each stage
  bool clips_norm = false;
};

struct ScheduleBuilder {
  std::string_view name;
  std::string_view summary;  // one line for the help and the documentation
  std::string_view source;   // the paper it comes from
  bool is_training;
  // The compute order of one stage: F and B of all its micro-batches, nothing else.
  std::vector<Action> (*build_order)(int32_t stage, int32_t num_stages, int32_t num_micro_batches);
};

[[nodiscard]] std::span<const ScheduleBuilder> schedule_builders();

// RA before F, SA after F, RG before B, SG after B; after the last of them SC0, the stage's TR, its
// AR, SC1 when clipping, and U; forward-only ends with SC0. A replica without micro-batches keeps
// its collectives and its update.
//
// Builds, completes (transfers, reductions, update) and verifies. An unknown name lists the known
// ones; numbers that no schedule exists for are refused with the numbers in the message.
[[nodiscard]] Result<Schedule> build_schedule(std::string_view name,
                                              const ScheduleOptions& options);

}  // namespace trireme
