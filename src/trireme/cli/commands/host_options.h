// Options of what ranks do over a network: where they meet and what carries their bytes.
#pragma once

#include <CLI/CLI.hpp>

#include "trireme/cli/request.h"

namespace trireme {

// `run` outlives the app.
void add_host_options(CLI::App& app, RunRequest& run);

}  // namespace trireme
