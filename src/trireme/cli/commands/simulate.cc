// `trireme simulate`: what a step of a schedule would cost on a cluster; nothing runs.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/cli/command.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/commands/step_options.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/requested_step.h"
#include "trireme/cli/validators.h"
#include "trireme/import/output_path.h"
#include "trireme/schedule/builders.h"
#include "trireme/sim/simulation_text.h"

namespace trireme {
namespace {

struct SimulateRequest {
  StepRequest step;
  std::string output;
  bool finds_warm_ups = false;
  bool wants_json = false;
};

// And a sentence that says which.
Status add_warm_ups(Prediction& prediction, const SimOptions& options) {
  TRIREME_TRY(const ScheduleBuilder* builder, find_builder(prediction.schedule.builder));
  if (!builder->has_extra_warm_ups) {
    return Error{fmt::format("schedule {} has no extra warm-ups, which are for 1f1b and 2bw",
                             prediction.schedule.builder)};
  }
  if (prediction.schedule.num_stages == 1) return Status();
  TRIREME_TRY(std::vector<int32_t> found, find_extra_warm_ups(prediction, options));
  TRIREME_TRY(set_extra_warm_ups(prediction, std::move(found)));
  prediction.notes.push_back(
      fmt::format("found --extra-warm-ups {}", fmt::join(prediction.extra_warm_ups, ",")));
  return Status();
}

Result<std::string> run_simulate(const SimulateRequest& request) {
  TRIREME_TRY(check_distinct({{"-o", request.output}}, step_inputs(request.step)));
  TRIREME_TRY(check_writable("-o", request.output, WriteKind::kWhole));
  TRIREME_TRY(Prediction prediction, prediction_of(request.step));
  SimOptions options = request.step.options;
  options.records_events = false;
  if (request.finds_warm_ups) TRIREME_TRY(add_warm_ups(prediction, options));
  options.records_events = !request.output.empty();
  TRIREME_TRY(const Simulation simulation, simulate_step(prediction, options));
  options.records_events = false;
  options.has_free_network = true;
  TRIREME_TRY(const Simulation free, simulate_step(prediction, options));
  if (!request.output.empty()) {
    TRIREME_TRY(write_whole(request.output, to_text(simulation.timeline)));
  }
  if (request.wants_json) {
    return simulation_json(simulation, free.step, prediction.cluster, prediction.notes);
  }
  return simulation_table(simulation, free.step, prediction.cluster, prediction.notes);
}

}  // namespace

RequestMaker add_simulate(CLI::App& app) {
  const auto request = std::make_shared<SimulateRequest>();
  add_step_options(app, request->step);
  app.add_flag("--find-extra-warm-ups", request->finds_warm_ups,
               "of 1f1b and 2bw: take those that are worth their memory, and say them")
      ->excludes("--extra-warm-ups")
      ->group("Plan");
  app.add_option("-o,--output", request->output, "write the timeline, for `trireme report`")
      ->check(not_empty());
  app.add_flag("--json", request->wants_json, "print the result as JSON");
  return [&app, request]() -> Result<Request> {
    const std::string what = step_contradiction(request->step, app);
    if (!what.empty()) return Error{what};
    return Request([request] { return run_simulate(*request); });
  };
}

}  // namespace trireme
