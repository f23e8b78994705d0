// GlooTransport: Transport over c10d's Gloo process groups; ranks are processes. Torch-free to
// include.
//
// One group carries all point-to-point transfers, and each communicator has a group of its own.
// Gloo matches point-to-point by peer and tag, and collectives by their order in the group.
//
// Sizes agree because all ranks derive them from one request (worker/agreement.h). Should they not:
// a larger message ends the receiving process, by Gloo's own check; one that is shorter by 8 bytes
// or more fails the wait, because the end of the buffer still holds what was written there when the
// receive was posted. A header on each message would find all, and cost a message each.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/result.h"
#include "trireme/exec/control_client.h"
#include "trireme/exec/transport.h"

namespace trireme {

struct GlooOptions {
  int32_t rank = 0;
  int32_t num_ranks = 1;
  std::string host = "127.0.0.1";  // the name or address that other ranks reach this one by
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// The store is the supervisor's, seen through `client`, which outlives the transport.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_gloo_transport(const GlooOptions& options,
                                                                     ControlClient& client);

}  // namespace trireme
