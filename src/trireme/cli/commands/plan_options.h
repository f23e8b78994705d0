// The options that choose a plan: of `trireme plan`, `train` and every command that needs one.
#pragma once

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

// Of them those that say which stage computes what, and in which order.
void add_stage_options(CLI::App& app, PlanChoice& plan);
void add_plan_options(CLI::App& app, PlanChoice& plan);

}  // namespace trireme
