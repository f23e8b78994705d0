// `trireme rehearse`: the real runtime with emulated kernels; the run itself is cli/launch.h's, or
// the worker's.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/command.h"
#include "trireme/cli/commands/host_options.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/commands/step_options.h"
#include "trireme/cli/validators.h"

namespace trireme {

RequestMaker add_rehearse(CLI::App& app) {
  const auto run = std::make_shared<RunRequest>();
  run->steps = 5;
  add_step_options(app, run->rehearsal.emplace());
  app.add_option("--steps", run->steps, "after one that warms up [5]")->transform(positive());
  app.add_option("--timeline", run->timeline,
                 "record what each rank does in the last 20 steps, for `trireme report`")
      ->check(not_empty());
  app.add_flag("--quiet", run->is_quiet, "no progress");
  app.add_flag("--json", run->wants_json, "print the result as one JSON object");
  add_host_options(app, *run);
  return [&app, run]() -> Result<Request> {
    const std::string what = step_contradiction(*run->rehearsal, app);
    if (!what.empty()) return Error{what};
    return Request(*run);
  };
}

}  // namespace trireme
