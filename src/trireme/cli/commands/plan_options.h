// The options that choose a plan: of `trireme plan`, `train` and every command that needs one.
#pragma once

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

void add_plan_options(CLI::App& app, PlanChoice& plan);

}  // namespace trireme
