#include "trireme/exec/run_schedule.h"

#include <fmt/format.h>

#include "trireme/exec/executor.h"
#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/pattern_kernels.h"
#include "trireme/exec/run_ranks.h"
#include "trireme/schedule/peers.h"

namespace trireme {

RunOutcome run_schedule(const Schedule& schedule, const RunOptions& options) {
  const int32_t count = num_ranks(schedule);
  const auto network = make_loopback_network(count);
  RunOutcome outcome;
  outcome.calls.resize(static_cast<size_t>(count));
  outcome.ranks = run_ranks(count, [&](int32_t rank) -> Status {
    const std::unique_ptr<Transport> loopback = make_loopback_transport(network, rank);
    const std::unique_ptr<Transport> decorated =
        options.decorate ? options.decorate(rank, *loopback) : nullptr;
    PatternKernels kernels(schedule, rank);
    Executor executor(rank, kernels, decorated ? *decorated : *loopback);
    Status status = executor.join(schedule);
    for (int32_t step = 0; step < options.num_steps && status.ok(); ++step) {
      status = executor.run_step(schedule);
    }
    if (!status.ok()) shut_down(*network, fmt::format("rank {} failed", rank));
    outcome.calls[static_cast<size_t>(rank)] = kernels.calls();
    return status;
  });
  return outcome;
}

}  // namespace trireme
