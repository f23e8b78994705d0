#include "trireme/exec/run_schedule.h"

#include <utility>

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
  std::vector<std::unique_ptr<Transport>> transports;
  if (options.make_transports) transports = options.make_transports(count);
  RunOutcome outcome;
  outcome.calls.resize(static_cast<size_t>(count));
  outcome.ranks = run_ranks(count, [&](int32_t rank) -> Status {
    const std::unique_ptr<Transport> own = transports.empty()
                                               ? make_loopback_transport(network, rank)
                                               : std::move(transports[static_cast<size_t>(rank)]);
    const std::unique_ptr<Transport> decorated =
        options.decorate ? options.decorate(rank, *own) : nullptr;
    PatternKernels kernels(schedule, rank);
    kernels.announce(options.announced);
    if (options.size_seed.has_value()) kernels.size_by(*options.size_seed);
    Executor executor(rank, kernels, decorated ? *decorated : *own);
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
