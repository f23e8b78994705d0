// run_schedule: a whole run over pattern kernels, a thread a rank; for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/transport.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

struct RunOptions {
  int32_t num_steps = 2;                             // of a schedule that is run alone
  std::vector<int32_t> announced = {};               // see PatternKernels::announce()
  std::optional<uint32_t> size_seed = std::nullopt;  // see PatternKernels::size_by()
  // Makes the ranks' transports; null: of a loopback network.
  std::function<std::vector<std::unique_ptr<Transport>>(int32_t num_ranks)> make_transports =
      nullptr;
  // Puts a transport of the test before a rank's own, which outlives it.
  std::function<std::unique_ptr<Transport>(int32_t rank, Transport& inner)> decorate = nullptr;
};

struct RunOutcome {
  std::vector<Status> ranks;
  std::vector<std::vector<std::string>> calls;  // of the kernels, by rank
};

// A rank that fails shuts the network down, or leaves, as a worker does. REQUIRES: verified.
[[nodiscard]] RunOutcome run_schedule(const Schedule& schedule, const RunOptions& options = {});
// These steps after each other.
[[nodiscard]] RunOutcome run_steps(std::span<const Schedule> steps, const RunOptions& options = {});

}  // namespace trireme
