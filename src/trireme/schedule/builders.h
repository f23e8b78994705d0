// The table of pipeline schedules: one row a builder, one file a builder in builders/.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/schedule/schedule.h"
#include "trireme/schedule/timetable.h"

namespace trireme {

// Where a step lies in a run whose steps overlap (Schedule::num_found, num_ahead).
enum class StepPlace : uint8_t { kAlone, kFirst, kBetween, kLast };
[[nodiscard]] constexpr bool follows_a_step(StepPlace place) {
  return place == StepPlace::kBetween || place == StepPlace::kLast;
}
[[nodiscard]] constexpr bool is_followed_by_a_step(StepPlace place) {
  return place == StepPlace::kFirst || place == StepPlace::kBetween;
}

struct ScheduleOptions {
  int32_t num_stages = 1;
  std::vector<int32_t> num_micro_batches = {};         // of each replica
  std::vector<std::vector<int32_t>> tied_groups = {};  // see Schedule
  std::vector<int32_t> num_buckets = {};               // see Schedule; empty: 0 for each stage
  std::vector<int32_t> num_tied_buckets = {};          // see Schedule
  std::vector<int32_t> num_row_tables = {};            // see Schedule
  bool clips_norm = false;
  int32_t num_chunks = 1;  // of each rank
  // Of an evaluation, which goes where training does; other schedules have one of their own.
  Placement placement = Placement::kLooped;
  PassCosts costs = {};  // what the order of those that look at costs is found from
  // Micro-batch chunks that a rank may have in flight (see peak_in_flight); 0: as many as the
  // schedule is known for.
  int32_t max_in_flight = 0;
  // For `text`: compute actions of one replica, and RG where a wait for a gradient comes earlier
  // than the backward. Its header has the chunks and the placement.
  std::shared_ptr<const Schedule> order = nullptr;
  StepPlace place = StepPlace::kAlone;  // of schedules whose steps overlap; others have one place
  CommunicationRules communication = {};
  // Of schedules that can have them: by hop from a stage to the next one, how many forwards more
  // than that one the stage is ahead, beyond the one that a pipeline has. Empty: 0.
  std::vector<int32_t> extra_warm_ups = {};
  // Those of the step before, where steps overlap and it has others. Such a step runs the forwards
  // that it is short of at once, and of what it finds too much none until it is used up.
  std::optional<std::vector<int32_t>> found_extra_warm_ups = {};
  int32_t least_look_ahead = 0;  // where more is needed than a step needs by itself
};

// What the compute orders of one replica are made from.
struct OrderRequest {
  int32_t num_stages = 1;
  int32_t num_chunks = 1;
  int32_t num_micro_batches = 0;
  Placement placement = Placement::kLooped;
  PassCosts costs = {};
  int32_t max_in_flight = 0;
  const Schedule* order = nullptr;
  StepPlace place = StepPlace::kAlone;
  bool clips_norm = false;
  std::vector<int32_t> ahead = {};  // by stage: forwards ahead
  std::vector<int32_t> found = {};  // by stage: those that the step before has run ahead
  bool has_late_update = false;     // the step before has left its update to this one
  // By stage: of the step before, to be summed here.
  std::vector<std::vector<int32_t>> late_buckets = {};
};
// By stage: its compute actions but U; RG where it is to be waited for before other passes. With
// what the step before has left: AR-, SC1- and U-.
using ComputeOrders = std::vector<std::vector<Action>>;

inline constexpr int32_t kAnyChunks = 0;

struct ScheduleBuilder {
  std::string_view name;
  std::string_view summary;  // one line for the help and the documentation
  std::string_view source;   // the paper it comes from
  bool is_training;
  int32_t num_chunks;  // a rank has, or kAnyChunks
  Placement placement;
  int32_t num_weight_versions;  // 2: steps overlap
  bool has_extra_warm_ups;
  // Error: no such order exists for these numbers.
  Result<ComputeOrders> (*build_orders)(const OrderRequest& request);
};

[[nodiscard]] std::span<const ScheduleBuilder> schedule_builders();
// Error: an unknown name; it lists the known ones.
[[nodiscard]] Result<const ScheduleBuilder*> find_builder(std::string_view name);

// RA before F, SA after F, RG before B or I, SG after it; after the last of them SC0, the AR that
// need no TR, the stage's TR, its other AR, SC1 when clipping, and U; forward-only ends with SC0.
// Where the stage has row tables, SX0 comes after the last forward, SX1 before the last pass that
// makes gradients, and their sums before TR.
// Where sums are early SC0 comes after the last forward, so that no update waits for it. A replica
// without micro-batches keeps its collectives and its update. A step that is followed by one leaves
// SC1, U, and the AR that would wait for TR, to that one, unless updates come at the end.
//
// Builds, completes (transfers, reductions, update) and verifies. An unknown name lists the known
// ones; numbers that no schedule exists for are refused with the numbers in the message.
[[nodiscard]] Result<Schedule> build_schedule(std::string_view name,
                                              const ScheduleOptions& options);

// The schedules of an uninterrupted run of so many steps, in their order: of a schedule whose steps
// overlap the first, those between and the last. Verified as a whole. REQUIRES: a step at least.
[[nodiscard]] Result<std::vector<Schedule>> build_run(std::string_view name,
                                                      const ScheduleOptions& options,
                                                      int32_t num_steps);

// The least_look_ahead of the steps from where a run goes over to other extra warm-ups on, so that
// it verifies as a whole. REQUIRES: options with those that are found. Error: such a run does not
// verify.
[[nodiscard]] Result<int32_t> look_ahead_of_change(std::string_view name,
                                                   const ScheduleOptions& options);

}  // namespace trireme
