// step_costs_of(): a Graph, a Plan and what is known of the device -> StepCosts, the simulator's
// view of the plan.
//
// Times of a virtual stage are sums over the blocks that it runs. A block that a plan cuts in two
// is divided as the analytic model divides it between its operators. Bytes that are kept from a
// forward to its backward follow from what each operator saves (saved_values.h), corrected by what
// was measured of whole blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cost/device_model.h"
#include "trireme/cost/layer_costs.h"
#include "trireme/cost/profile.h"
#include "trireme/cost/step_costs.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/plan.h"

namespace trireme {

// Nodes where the blocks of a profile begin, ascending; the first is 0.
[[nodiscard]] Result<std::vector<int32_t>> profile_blocks(const Graph& graph);

struct AnalyticOptions {
  DeviceModel device;
  std::string device_name;
  int32_t num_optimizer_states = 2;  // tensors a parameter: 2 of AdamW, 1 of momentum
};

// Of products in the dtype of the model's parameters. Error: the device's rate of it is unknown.
[[nodiscard]] Result<AnalyticOptions> analytic_options(const Graph& graph, const DeviceKind& kind,
                                                       int32_t num_optimizer_states);

// All passes of all blocks at these sizes of a micro-batch, from flops, bytes and launches.
[[nodiscard]] Result<Profile> analytic_profile(const Graph& graph, const std::string& model,
                                               const std::vector<int64_t>& micro_batches,
                                               const AnalyticOptions& options);

// One rank's memory of parameters: weights and their accumulators in each version, the optimizer's
// state, buffers.
[[nodiscard]] int64_t static_bytes(const Graph& graph, const Stage& stage,
                                   int32_t num_optimizer_states, int32_t num_weight_versions = 1);

// For micro-batches of `micro_batch` samples. `measured` may be null; what it lacks is analytic.
// Errors: a plan or a profile of another model; more time or memory than costs may have.
// REQUIRES: micro_batch >= 1.
[[nodiscard]] Result<StepCosts> step_costs_of(const Graph& graph, const Plan& plan,
                                              int64_t micro_batch, const Profile* measured,
                                              const AnalyticOptions& options);

// The blocks of the same, as layers. A parameter that several blocks of a stage use belongs to the
// first of them, whose backward is the last to add to its gradient. Errors: the same.
[[nodiscard]] Result<StepLayers> step_layers_of(const Graph& graph, const Plan& plan,
                                                int64_t micro_batch, const Profile* measured,
                                                const AnalyticOptions& options);

}  // namespace trireme
