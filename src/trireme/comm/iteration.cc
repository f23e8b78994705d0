#include "trireme/comm/iteration.h"

#include <optional>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/comm/step_graph.h"
#include "trireme/comm/steps_run.h"

namespace trireme {
namespace {

StageProblem problem_of(const Workload& workload, const StepGraph& graph, const IdealTimes& times,
                        size_t stage) {
  StageProblem problem{.step = times.step};
  for (const int32_t index : graph.gradients[stage]) {
    const auto t = static_cast<size_t>(index);
    const Transfer& transfer = workload.transfers[t];
    problem.route = workload.routes[static_cast<size_t>(transfer.route)];
    const SimTime later = transfer.distance * times.step;
    problem.gradients.push_back(
        {.kind = transfer.kind,
         .bytes = transfer.bytes,
         .ready = times.made[t],
         .deadline = times.needed[t] + later,
         .use_time = workload.tasks[stage][static_cast<size_t>(transfer.consumer.task)]});
  }
  for (size_t g = 0; g + 1 < problem.gradients.size(); ++g) {
    problem.gradients[g].use_time =
        problem.gradients[g + 1].deadline - problem.gradients[g].deadline;
  }
  return problem;
}

}  // namespace

Result<StageProblem> stage_problem(const Workload& workload, int32_t stage,
                                   TableExchange exchange) {
  TRIREME_TRY(verify_workload(workload));
  const StepGraph graph = step_graph(workload, ForwardWaits::kForItsLayer, exchange);
  const IdealTimes times = *ideal_times(workload, graph);
  return problem_of(workload, graph, times, static_cast<size_t>(stage));
}

Result<StepsResult> run_steps(const Workload& workload, const PolicyRow& policy,
                              const StepsOptions& options) {
  TRIREME_TRY(verify_workload(workload));
  const TableExchange exchange =
      policy.exchanges_rows ? TableExchange::kRowsOnly : TableExchange::kWholeTable;
  const StepGraph free_graph = step_graph(workload, ForwardWaits::kForItsLayer, exchange);
  const IdealTimes times = *ideal_times(workload, free_graph);
  const StepGraph graph = step_graph(
      workload, options.forces_own_layer ? ForwardWaits::kForItsLayer : policy.waits, exchange);
  StepsRun run(workload, graph, policy, options);
  for (size_t stage = 0; stage < workload.tasks.size(); ++stage) {
    const StageProblem problem = problem_of(workload, graph, times, stage);
    if (problem.gradients.empty() || problem.route.members == 1) continue;
    run.set_policy(stage, policy.make(problem, with_defaults(policy, options.policy)));
  }
  TRIREME_CHECK(run.run(), fmt::format("policy {} leaves gradients waiting", policy.name));
  StepsResult result = run.result();
  result.compute = times.step;
  return result;
}

}  // namespace trireme
