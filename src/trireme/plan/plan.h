// Plan: what goes where. Stages of the model, replicas, micro-batches, and the schedule's name.
// With chunks, a stage holds several pieces of the model, its virtual stages (placement.h).
//
// Text form: YAML, made to be read and edited; only `first_node` of a stage decides, the rest of a
// stage describes it and is checked for its form only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/gradients.h"
#include "trireme/plan/partition.h"
#include "trireme/plan/placement.h"
#include "trireme/plan/row_tables.h"

namespace trireme {

// Every rank knows the whole schedule, so its size bounds the number of ranks.
inline constexpr int64_t kMaxRanks = 1 << 14;
inline constexpr int32_t kMaxPlanChunks = 16;

// A virtual stage.
struct PlanStage {
  std::string first_node;    // the first value that the stage makes, such as "layer_norm_4"
  std::string first_module;  // the user's module names
  std::string last_module;
  int64_t num_parameters = 0;       // elements; tied ones count in each stage that uses them
  double flops_share = 0;           // of the forward pass, 0 .. 1
  int64_t bytes_in = 0;             // activations a sample, from the virtual stage before
  int64_t bytes_out = 0;            // activations a sample, to the one after
  std::vector<std::string> inputs;  // of the batch, that it reads itself
  bool operator==(const PlanStage&) const = default;
};

struct Plan {
  std::string model;      // path of the archive, for people: UTF-8 whatever its bytes
  int64_t num_nodes = 0;  // of the model (num_model_nodes)
  int32_t pp = 1;
  int32_t dp = 1;
  int32_t micro_batches = 1;  // of a replica
  std::string schedule = "1f1b";
  int32_t chunks = 1;  // of each stage
  Placement placement = Placement::kLooped;
  std::string communication = "trirace";  // the policy, by its name (schedule/communication.h)
  std::string order;  // of schedule `text`: that of the passes, as schedule/schedule.h
  int64_t bucket_bytes = kDefaultBucketBytes;
  SparseChoice sparse = SparseChoice::kAuto;
  std::vector<int32_t> extra_warm_ups;  // by hop; empty: none
  std::vector<PlanStage> stages;        // pp x chunks, as a sample passes them
  bool operator==(const Plan&) const = default;
};

struct PlanOptions {
  int32_t pp = 1;
  int32_t dp = 1;
  int32_t micro_batches = 1;
  std::string schedule = "1f1b";
  int32_t chunks = 1;
  Placement placement = Placement::kLooped;
  std::string communication = "trirace";
  std::string order;
  int64_t bucket_bytes = kDefaultBucketBytes;  // of gradients that are summed at once
  SparseChoice sparse = SparseChoice::kAuto;   // of tables whose gradients are summed row by row
  std::vector<int32_t> extra_warm_ups = {};    // by hop; none: no hop has any
  std::vector<std::string> cut_modules;        // pp x chunks - 1, or none: the planner decides
};

// Virtual stages by dynamic programming over the blocks: the smallest largest share of flops, and
// among plans within 2 % of it the one that sends the fewest bytes; or cut before the named
// modules. Errors: fewer places to cut than stages, a module that does not exist or cannot be cut
// before.
[[nodiscard]] Result<Plan> build_plan(const Graph& graph, const std::string& model_path,
                                      const PlanOptions& options);

// The plan belongs to the graph: its nodes exist, are in order and can be cut before.
[[nodiscard]] Status verify_plan(const Plan& plan, const Graph& graph);

// The first nodes of virtual stages 1, 2, ... of a verified plan.
[[nodiscard]] Result<std::vector<int32_t>> cuts_of(const Plan& plan, const Graph& graph);

// The stages of a verified plan.
[[nodiscard]] Result<Partition> partition_by_plan(const Plan& plan, const Graph& graph);

// Its gradients in buckets, with the row tables that are chosen for steps of so many samples, of
// all replicas.
[[nodiscard]] BucketOptions bucket_options(const Graph& graph, const Plan& plan,
                                           const Partition& partition, int64_t step_samples);

[[nodiscard]] std::string to_text(const Plan& plan);
[[nodiscard]] Result<Plan> parse_plan(std::string_view text);
// A table for people.
[[nodiscard]] std::string to_table(const Plan& plan);

}  // namespace trireme
