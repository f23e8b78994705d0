// LoopbackTransport: ranks are threads of one process. The reference implementation of Transport,
// and what parity grids and tests run on.
#pragma once

#include <memory>

#include "trireme/exec/transport.h"

namespace trireme {

// The shared side of all ranks of one run; threads share it by shared_ptr.
class LoopbackNetwork;

[[nodiscard]] std::shared_ptr<LoopbackNetwork> make_loopback_network(int32_t num_ranks);

// Rank `rank` of the network. Sums of an all-reduce are made in ascending member order, so they do
// not depend on timing.
[[nodiscard]] std::unique_ptr<Transport> make_loopback_transport(
    std::shared_ptr<LoopbackNetwork> network, int32_t rank);

// Every wait of every rank fails with this message from now on. Any thread.
void shut_down(LoopbackNetwork& network, const std::string& message);

}  // namespace trireme
