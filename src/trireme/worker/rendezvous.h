// How a worker finds its place in the run: from the variables of `trireme train` or of torchrun.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/result.h"
#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"

namespace trireme {

struct RankEnvironment {
  int32_t rank = 0;
  int32_t num_processes = 1;
  // Of `trireme train`:
  std::string hub;  // host:port; empty under torchrun
  std::string token;
  // Of torchrun:
  std::string master_host;
  uint16_t master_port = 0;
  bool agent_serves_store = false;
  std::string attempt;  // run id and restart count: keys of two attempts never meet

  [[nodiscard]] bool is_supervised() const { return !hub.empty(); }
  [[nodiscard]] bool owns_hub() const { return !is_supervised() && rank == 0; }
};

// `variable` looks a name up, as std::getenv. Errors: a variable is missing or malformed.
[[nodiscard]] Result<RankEnvironment> read_rank_environment(
    const std::function<const char*(const char*)>& variable);

// The connection of this rank to the run, and rank 0's hub when there is no supervisor.
struct Rendezvous {
  std::unique_ptr<ControlHub> hub;  // of rank 0 under torchrun
  std::unique_ptr<ControlClient> client;
};

struct RendezvousOptions {
  DescribeRank describe_rank = describe_bare_rank;
  // Of ControlClient:
  std::function<std::string()> where;
  std::function<void(const std::string&)> on_lost;
  std::function<void(const std::string&)> on_hub_lost;
  std::function<void(const HubEvent&)> on_hub_event;  // of the hub that rank 0 owns
};

// Under torchrun rank 0 starts a hub and tells its address through the agent's store.
[[nodiscard]] Result<Rendezvous> rendezvous(const RankEnvironment& environment,
                                            RendezvousOptions options);

}  // namespace trireme
