// Options of the step that `trireme simulate` and `trireme rehearse` are asked for.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

// `request` outlives the app.
void add_step_options(CLI::App& app, StepRequest& request);
// What contradicts itself, after parsing, in one sentence; empty: nothing.
[[nodiscard]] std::string step_contradiction(const StepRequest& request, const CLI::App& app);

}  // namespace trireme
