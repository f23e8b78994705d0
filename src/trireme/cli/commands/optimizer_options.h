// The options of the optimizer and the learning rate.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

void add_optimizer_options(CLI::App& app, RunRequest& run);
// --optimizer and --momentum alone: what decides how much an update costs.
void add_optimizer_choice(CLI::App& app, OptimizerOptions& optimizer);

// What is wrong with them once the words are parsed. Empty: nothing.
[[nodiscard]] std::string optimizer_contradiction(const RunRequest& run, const CLI::App& app);

}  // namespace trireme
