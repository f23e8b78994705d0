#include "trireme/exec/run_schedule.h"

#include <fmt/format.h>

#include "trireme/exec/executor.h"
#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/pattern_kernels.h"
#include "trireme/exec/run_ranks.h"
#include "trireme/schedule/peers.h"

namespace trireme {

RunOutcome run_schedule(const Schedule& schedule, const RunOptions& options) {
  return run_steps(std::vector<Schedule>(static_cast<size_t>(options.num_steps), schedule),
                   options);
}

RunOutcome run_steps(std::span<const Schedule> steps, const RunOptions& options) {
  const Schedule& schedule = steps.front();
  const int32_t count = num_ranks(schedule);
  const auto network = make_loopback_network(count);
  RunOutcome outcome;
  outcome.calls.resize(static_cast<size_t>(count));
  outcome.ranks = run_ranks(count, [&](int32_t rank) -> Status {
    const std::unique_ptr<Transport> loopback = make_loopback_transport(network, rank);
    const std::unique_ptr<Transport> decorated =
        options.decorate ? options.decorate(rank, *loopback) : nullptr;
    PatternKernels kernels(schedule, rank);
    kernels.announce(options.announced);
    Executor executor(rank, kernels, decorated ? *decorated : *loopback);
    Status status = executor.join(schedule);
    for (size_t step = 0; step < steps.size() && status.ok(); ++step) {
      const bool is_followed = !steps[step].num_ahead.empty();
      status = executor.run_step(steps[step], is_followed ? &steps[step + 1] : nullptr);
      kernels.end_step();
    }
    if (!status.ok()) shut_down(*network, fmt::format("rank {} failed", rank));
    outcome.calls[static_cast<size_t>(rank)] = kernels.calls();
    return status;
  });
  return outcome;
}

}  // namespace trireme
