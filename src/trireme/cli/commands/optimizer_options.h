// The options of the optimizer and the learning rate.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

void add_optimizer_options(CLI::App& app, RunRequest& run);

// What is wrong with them once the words are parsed. Empty: nothing.
[[nodiscard]] std::string optimizer_contradiction(const RunRequest& run, const CLI::App& app);

}  // namespace trireme
