// `trireme tune-comm`: runs every communication policy on the step of a plan, in simulated time,
// and picks one; nothing runs.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/cli/command.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/commands/step_options.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/cli/requested_step.h"
#include "trireme/cli/tuned_text.h"
#include "trireme/cli/validators.h"
#include "trireme/comm/pipeline_workload.h"
#include "trireme/import/archive.h"
#include "trireme/import/output_path.h"

namespace trireme {
namespace {

struct TuneRequest {
  StepRequest step;
  std::string output;
  double overhead_us = 20;
  bool wants_json = false;
};

Result<Workload> workload_of(const Prediction& prediction, double overhead_us) {
  TRIREME_TRY(const Schedule schedule, middle_step(prediction));
  if (!schedule.is_training || schedule.num_micro_batches.size() == 1) {
    return Error{fmt::format(
        "{}, so there is nothing to tune; {}",
        schedule.is_training ? "one replica sums no gradients" : "an evaluation sums no gradients",
        schedule.is_training ? "give --dp" : "name a schedule of training")};
  }
  if (devices_of(prediction.cluster).size() < schedule.ranks.size()) {
    return Error{fmt::format("the schedule has {} ranks, but the cluster {} devices",
                             schedule.ranks.size(), devices_of(prediction.cluster).size())};
  }
  PipelineRoutes routes = pipeline_routes(schedule, prediction.cluster);
  for (Route& route : routes.sums) route.overhead_s = 1e-6 * overhead_us;
  return pipeline_workload(schedule, prediction.costs, prediction.layers, routes);
}

// The plan of the request, with the policy.
Status write_plan(const TuneRequest& request, const TriedPolicy& picked) {
  TRIREME_TRY(const Archive archive, Archive::open(request.step.what));
  TRIREME_TRY(Plan plan, choose_plan(archive.graph(), request.step.what, request.step.plan));
  plan.communication = picked.row->name;
  if (bucket_bytes_of(picked) > 0) plan.bucket_bytes = bucket_bytes_of(picked);
  return write_whole(request.output, to_text(plan));
}

Result<std::string> run_tune(const TuneRequest& request) {
  TRIREME_TRY(check_distinct({{"-o", request.output}}, step_inputs(request.step)));
  TRIREME_TRY(check_writable("-o", request.output, WriteKind::kWhole));
  TRIREME_TRY(const Prediction prediction, prediction_of(request.step));
  TRIREME_TRY(const Workload workload, workload_of(prediction, request.overhead_us));
  TRIREME_TRY(const std::vector<TriedPolicy> tried, try_policies(workload));
  TRIREME_TRY(const StepsResult free,
              run_steps(workload, *tried.front().row, {.has_free_network = true}));
  if (!request.output.empty()) TRIREME_TRY(write_plan(request, pick(tried)));
  return request.wants_json ? tuned_json(tried, free.compute, prediction.notes)
                            : tuned_table(tried, free.compute, prediction.notes);
}

}  // namespace

RequestMaker add_tune_comm(CLI::App& app) {
  const auto request = std::make_shared<TuneRequest>();
  request->step.wants_layers = true;
  add_step_options(app, request->step);
  app.add_option("--overhead-us", request->overhead_us,
                 "what a sum of gradients occupies its links for besides its bytes, in us [20]")
      ->check(number());
  app.add_option("-o,--output", request->output,
                 "of a MODEL.pt2: write its plan with the policy that was picked")
      ->check(not_empty());
  app.add_flag("--json", request->wants_json, "print all that was tried as JSON");
  return [&app, request]() -> Result<Request> {
    const std::string what = step_contradiction(request->step, app);
    if (!what.empty()) return Error{what};
    if (!request->output.empty() && !is_archive(request->step.what)) {
      return Error{"-o writes the plan of a MODEL.pt2; a schedule has none"};
    }
    return Request([request] { return run_tune(*request); });
  };
}

}  // namespace trireme
