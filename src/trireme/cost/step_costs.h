// StepCosts: what the actions of one training step cost, as plain numbers: the simulator's view of
// a model on its devices. Times are of one micro-batch of the full size, bytes as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/base/sim_time.h"

namespace trireme {

// Of a time in nanoseconds and of a number of bytes: sums over a step's actions do not overflow.
inline constexpr int64_t kMaxStepCost = int64_t{1} << 42;

// Of one chunk of a stage.
struct ChunkCosts {
  SimTime forward = 0;
  SimTime backward = 0;  // the whole of it
  SimTime input_gradient = 0;
  SimTime weight_gradient = 0;
  SimTime recompute = 0;
  int64_t activation_bytes = 0;  // sent to the next virtual stage
  int64_t gradient_bytes = 0;    // sent to the one before
  int64_t kept_bytes = 0;        // from F or R to B or I, received included, what is sent not
  int64_t kept_input_bytes = 0;  // from Fc to R, the same
  int64_t deferred_bytes = 0;    // from I to W
  int64_t transient_bytes = 0;   // while any of its passes runs, beyond all of these
  // Where it is known better, the most that a pass holds, with all that it was handed and what its
  // micro-batch has kept; 0: what follows from the bytes above.
  int64_t forward_peak_bytes = 0;   // of F and R
  int64_t backward_peak_bytes = 0;  // of B
  int64_t split_peak_bytes = 0;     // of I
  // By gradient bucket of the stage: how much of its backward has run when the chunk adds no more
  // to it; 0: it adds nothing to it. Of buckets that are not listed this is not known.
  std::vector<SimTime> bucket_final = {};
  bool operator==(const ChunkCosts&) const = default;
};

// Of a stage's row tables: what the replicas tell each other of a step.
struct RowCosts {
  int64_t id_bytes = 0;                   // which rows they have read, all of them together
  std::vector<int64_t> table_bytes = {};  // by table: gradients of the rows that any has read
  bool operator==(const RowCosts&) const = default;
};

struct StageCosts {
  std::vector<ChunkCosts> chunks;
  SimTime update = 0;
  std::vector<int64_t> bucket_bytes;  // of gradient buckets, as Schedule::num_buckets counts them
  RowCosts rows = {};                 // tables as Schedule::num_row_tables counts them
  int64_t static_bytes = 0;           // weights, gradients, optimizer state
  bool operator==(const StageCosts&) const = default;
};

struct StepCosts {
  std::vector<StageCosts> stages;
  std::vector<int64_t> tied_bytes;  // by tied group
  int64_t scalar_bytes = 0;         // of an exchange of scalars
  bool operator==(const StepCosts&) const = default;
};

// By chunk: whether it adds to the bucket. None where one of them does not say.
[[nodiscard]] std::vector<bool> chunks_of_bucket(const StageCosts& stage, size_t bucket);
// How much of B, or of W, has run when the chunk adds no more to the bucket. REQUIRES: it adds.
[[nodiscard]] SimTime final_after(const ChunkCosts& chunk, size_t bucket, SimTime pass);

// Bytes of an SX (RowExchangeStep): a number for each table and replica, the ids, or a table's
// rows.
[[nodiscard]] int64_t row_exchange_cost(const RowCosts& rows, int32_t exchange, int32_t replicas);

// Every number is 0 to kMaxStepCost.
[[nodiscard]] Status verify_step_costs(const StepCosts& costs);
// Of what was computed: what is more than kMaxStepCost stays more than it, so that
// verify_step_costs() refuses it. REQUIRES: not below 0.
[[nodiscard]] SimTime step_cost_time(double seconds);
[[nodiscard]] int64_t step_cost_bytes(double bytes);

// YAML, inverses of each other for numbers from 0 to kMaxStepCost; what is absent is 0.
//
//   format: trireme-step-costs-1
//   stages:
//     - chunks: [{forward_ns: 2000, backward_ns: 4000, activation_bytes: 4096, kept_bytes: 65536,
//                final_ns: [4000]}]
//       update_ns: 500
//       bucket_bytes: [262144]
//       row_table_bytes: [4096]
//       row_id_bytes: 512
//       static_bytes: 1048576
//   tied_bytes: []
//   scalar_bytes: 16
[[nodiscard]] std::string to_text(const StepCosts& costs);
[[nodiscard]] Result<StepCosts> parse_step_costs(std::string_view text);

}  // namespace trireme
