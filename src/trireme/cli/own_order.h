// `--schedule FILE`: the order of passes that a user has written down, which a plan keeps as text.
//
// The file lists passes alone, or all actions of a step, as `trireme schedule` prints them: then
// its passes are taken, and what travels is added anew, for the model and the replicas at hand. It
// says how many stages and chunks there are, and micro-batches where nothing else is asked for.
#pragma once

#include <memory>
#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/plan.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// The builder of such orders.
inline constexpr const char* kOwnOrder = "text";

// It is the name of no schedule, and there is such a file.
[[nodiscard]] bool is_order_file(const std::string& schedule);

// Errors, by the file's name: it is no schedule; no schedule can be built of it; its stages,
// chunks or micro-batches are not those that were asked for.
[[nodiscard]] Result<Plan> plan_by_own_order(const Graph& graph, const std::string& model,
                                             const PlanChoice& choice);

// The plan has an order where its schedule needs one, and a schedule can be built of it.
[[nodiscard]] Status check_own_order(const Plan& plan);

// Null: the schedule of the plan has a name. REQUIRES: check_own_order().
[[nodiscard]] Result<std::shared_ptr<const Schedule>> own_order_of(const Plan& plan);

}  // namespace trireme
