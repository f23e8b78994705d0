// run_rank(): the life of one rank, from its weights to its last step.
//
// Every rank walks through the same steps, evaluations and saves, decided from the request alone;
// only rank 0 reports and writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/executor.h"
#include "trireme/exec/transport.h"

namespace trireme {

struct RankContext {
  int32_t rank = 0;
  Transport* transport = nullptr;
  // A line for the supervisor (exec/progress.h); called by rank 0.
  std::function<void(std::string)> publish;
  // What the rank is doing: the executor, while it exists, and nullptr before it goes. It stays
  // after a failure, with all memory that transfers may still use.
  std::function<void(const Executor*)> watch;
  // A line for stderr, whatever is published; called by rank 0.
  std::function<void(const std::string&)> warn;
  // The rank is a process of its own, so that what its tensors hold is the process's.
  bool knows_memory = false;
  // What it is doing when the executor is not: "saving out.safetensors".
  std::function<void(std::string)> phase;
};

struct RankOutcome {
  Status status;
  // The failure is no echo of another rank's.
  bool is_own = false;
};

[[nodiscard]] RankOutcome run_rank(const RunSetup& setup, const RankContext& context);

}  // namespace trireme
