// The part of run_setup.h that is for rehearsals.

#include <utility>

#include "trireme/cli/requested_step.h"
#include "trireme/cli/run_setup.h"

namespace trireme {

Result<RunSetup> make_rehearsal_setup(const RunRequest& request) {
  RunSetup setup;
  setup.request = request;
  Rehearsal& rehearsal = setup.rehearsal.emplace();
  TRIREME_TRY(rehearsal.step, prediction_of(*request.rehearsal));
  const Schedule& schedule = rehearsal.step.schedule;
  SimOptions options = request.rehearsal->options;
  options.records_events = false;
  if (request.transport_kind() == TransportKind::kGloo) options.sharing = LinkSharing::kMaxMinFair;
  TRIREME_TRY(Simulation simulation, simulate_step(rehearsal.step, options));
  rehearsal.simulated_step = simulation.step;
  rehearsal.simulated_compute = std::move(simulation.compute);
  setup.plan.pp = schedule.num_stages;
  setup.plan.dp = static_cast<int32_t>(schedule.num_micro_batches.size());
  setup.plan.chunks = schedule.num_chunks;
  setup.plan.placement = schedule.placement;
  setup.plan.schedule = schedule.builder;
  setup.num_steps = request.steps.value_or(1);
  return setup;
}

}  // namespace trireme
