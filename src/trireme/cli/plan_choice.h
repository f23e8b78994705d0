// The plan that the user asked for: by its numbers, by names, or as a file.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/plan.h"

namespace trireme {

// The chunks a rank: those that were asked for, or that the schedule has.
[[nodiscard]] int32_t chunks_of(const PlanChoice& choice);
// The stages: those that were asked for, or that --cut makes. REQUIRES: a schedule by name.
[[nodiscard]] int32_t stages_of(const PlanChoice& choice);

// Errors: a schedule or a policy that does not exist; a file that is no plan, or not of this model.
[[nodiscard]] Result<Plan> choose_plan(const Graph& graph, const std::string& model,
                                       const PlanChoice& choice);

// The plan's, unless the optimizer needs another one. Error: what excludes each other.
[[nodiscard]] Result<SparseChoice> sparse_choice(const Plan& plan,
                                                 const OptimizerOptions& optimizer);

// The versions of the weights that the plan's schedule keeps; with 2, steps may overlap.
[[nodiscard]] int32_t num_weight_versions(const Plan& plan);
// Of the first stage, where steps overlap.
[[nodiscard]] int32_t num_forwards_ahead(const Plan& plan);

}  // namespace trireme
