// step_costs_of_spec(): a model given by its sizes, and how it is spread -> StepCosts, for the
// simulator: what training_cost.h says by formula, action by action.
//
// A rank of the simulation stands for the tp devices that share its layers; their sums are part of
// its passes. Of one of them, in half precision, with s tokens a sample, b samples, a heads, width
// h and t = tp, a layer keeps from its forward to its backward
//
//   s b h (10 + 24/t + 5 a s / (h t)) bytes        (Korthikanti et al. 2022, equation 2)
//
// and the last stage its logits in float32. Weights and gradients have 2 bytes a parameter, of each
// version of the weights, AdamW 12 (Rajbhandari et al. 2020, section 3.1).
#pragma once

#include <cstdint>

#include "trireme/base/result.h"
#include "trireme/cost/device_model.h"
#include "trireme/cost/layer_costs.h"
#include "trireme/cost/model_spec.h"
#include "trireme/cost/step_costs.h"
#include "trireme/cost/training_cost.h"
#include "trireme/plan/placement.h"

namespace trireme {

struct SpecChunks {
  int32_t chunks = 1;  // of each stage
  Placement placement = Placement::kLooped;
  int32_t num_weight_versions = 1;  // 2: with gradients of their own, as 2bw has
};

// Errors: see verify_layout(); layers that do not divide into pp times chunks; more time or memory
// than costs may have. REQUIRES: a model that verifies.
[[nodiscard]] Result<StepCosts> step_costs_of_spec(const ModelSpec& spec,
                                                   const TrainingLayout& layout,
                                                   const SpecChunks& chunks,
                                                   const DeviceModel& device,
                                                   const TrainingHosts& hosts);

// The layers of the same. The embedding is part of the first one and the head of the last; their
// shared table is that of the first where a stage holds both.
// REQUIRES: what step_costs_of_spec() takes.
[[nodiscard]] StepLayers step_layers_of_spec(const ModelSpec& spec, const TrainingLayout& layout,
                                             const SpecChunks& chunks, const DeviceModel& device,
                                             const TrainingHosts& hosts);

}  // namespace trireme
