// The options that say how the samples lie in the model's inputs, where it is not a row each.
#pragma once

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

void add_input_options(CLI::App& app, RunRequest& run);

}  // namespace trireme
