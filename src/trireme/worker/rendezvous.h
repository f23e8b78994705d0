// The rendezvous: every rank connects to the hub of the run, wherever it is.
//
//   trireme train                 the supervisor's hub, whose address a variable has
//   torchrun with its agent       rank 0's hub, whose address is in the agent's store
//   any other launcher            rank 0's hub, which listens on MASTER_ADDR:MASTER_PORT itself
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/launchers.h"
#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"

namespace trireme {

// The connection of this rank to the run, and rank 0's hub when there is no supervisor.
struct Rendezvous {
  std::unique_ptr<ControlHub> hub;
  std::unique_ptr<ControlClient> client;
  // The address at which other ranks reach this one for the transfers of training.
  std::string own_host;
};

struct RendezvousOptions {
  DescribeRank describe_rank = describe_bare_rank;
  std::string supervisor;                       // the program that it is: "trireme train"
  std::string interface_host;                   // own_host, when the user has chosen it
  std::chrono::milliseconds timeout{};          // for all ranks to come
  std::chrono::milliseconds silence_timeout{};  // a rank that is not heard for so long is lost
  // What this rank, or its hub, waits for: called after 5 s and then every 30 s. One sentence.
  std::function<void(const std::string&)> on_notice;
  // Of ControlClient:
  std::function<std::string()> where;
  std::function<void(const std::string&)> on_lost;
  std::function<void(const std::string&)> on_hub_lost;
  std::function<void(const HubEvent&)> on_hub_event;  // of the hub that rank 0 owns
};

[[nodiscard]] Result<Rendezvous> rendezvous(const RankEnvironment& environment,
                                            RendezvousOptions options);

// " on node7" when the ranks meet on another address than this host's loopback, else nothing.
[[nodiscard]] std::string host_suffix(const RankEnvironment& environment);

}  // namespace trireme
