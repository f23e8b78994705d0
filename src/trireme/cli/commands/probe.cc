// `trireme probe`: ranks that measure their processors and what joins them; the run itself is
// cli/launch.h's, or the worker's.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/command.h"
#include "trireme/cli/commands/host_options.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cli/validators.h"

namespace trireme {

RequestMaker add_probe(CLI::App& app) {
  const auto run = std::make_shared<RunRequest>();
  ProbeRequest& probe = run->probe.emplace();
  app.add_option("--workers", run->workers, "ranks on this machine [2]; of a launcher its own")
      ->transform(positive_count());
  app.add_option_function<std::string>(
         "--budget",
         [&probe](const std::string& text) { probe.budget_s = seconds_of_duration(text); },
         "how long to measure: 30s, 2m [20s]")
      ->check(duration());
  app.add_option("--threads", run->threads, "compute threads a rank")
      ->capture_default_str()
      ->transform(positive_count());
  app.add_flag("--pin", run->pins, "each rank stays on cores of its own");
  app.add_option("-o,--output", probe.output, "write the cluster to this YAML file [stdout]")
      ->check(not_empty());
  app.add_flag("--quiet", run->is_quiet, "no progress");
  app.add_flag("--json", run->wants_json, "print the result as one JSON object");
  add_host_options(app, *run);
  return [run]() -> Result<Request> { return Request(*run); };
}

}  // namespace trireme
