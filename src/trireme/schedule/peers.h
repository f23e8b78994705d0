// Who takes part in an action: where a stage's rank is, the other side of a transfer, the members
// of a collective, and the words for an action that people read.
//
// Activations go from a virtual stage to the next, gradients back. For S = 2 and 2 chunks (virtual
// stages 0 to 3): stage 0 holds 0 and 2, stage 1 holds 1 and 3, so SA3.0 on stage 1 meets RA3.1 on
// stage 0. With placement=v stage 0 holds 0 and 3, stage 1 holds 1 and 2: nothing is sent from 1 to
// 2.
//
// REQUIRES everywhere: the schedule's shape is right, the rank and the action's chunk are in range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme {

[[nodiscard]] int32_t num_ranks(const Schedule& schedule);
[[nodiscard]] int32_t stage_of(const Schedule& schedule, int32_t rank);
[[nodiscard]] int32_t replica_of(const Schedule& schedule, int32_t rank);
// The number of virtual stages is num_stages * num_chunks.
[[nodiscard]] int32_t virtual_stage_of(const Schedule& schedule, int32_t rank, int32_t chunk);
[[nodiscard]] bool is_first_virtual_stage(const Schedule& schedule, int32_t rank, int32_t chunk);
[[nodiscard]] bool is_last_virtual_stage(const Schedule& schedule, int32_t rank, int32_t chunk);

// Of a stage.
[[nodiscard]] int32_t num_row_tables(const Schedule& schedule, int32_t stage);
[[nodiscard]] bool holds_tied_group(const Schedule& schedule, int32_t stage);
// Of a stage: buckets 0 to this one are summed without TR before them.
[[nodiscard]] int32_t num_free_buckets(const Schedule& schedule, int32_t stage);

struct Counterpart {
  int32_t rank = 0;
  Action action;
};

// A place in a replica's pipeline.
struct ChunkPlace {
  int32_t rank = 0;
  int32_t chunk = 0;
};

// Where a virtual stage of the rank's replica is. Nothing when there is no such virtual stage.
[[nodiscard]] std::optional<ChunkPlace> place_of(const Schedule& schedule, int32_t rank,
                                                 int32_t virtual_stage);

// The matching receive of a send and the other way round. Nothing when the action is no transfer,
// when it would leave the pipeline (RA on the first virtual stage, SA on the last), or when the
// virtual stage at the other side is on the same rank.
[[nodiscard]] std::optional<Counterpart> counterpart(const Schedule& schedule, int32_t rank,
                                                     const Action& action);

// The same for a transfer that stays inside the pipeline. REQUIRES: it does.
[[nodiscard]] Counterpart other_side(const Schedule& schedule, int32_t rank, const Action& action);

// The ranks that join this rank in a collective, ascending, itself included. AR, SX: the replicas
// of its stage; TR: the stages of the group in its replica; SC: all. Empty for other kinds.
[[nodiscard]] std::vector<int32_t> members(const Schedule& schedule, int32_t rank,
                                           const Action& action);

// For people: "RA3 (activations of micro-batch 3 from rank 0)".
[[nodiscard]] std::string describe(const Schedule& schedule, int32_t rank, const Action& action);

}  // namespace trireme
