// How the ranks of a run find each other for their transfers.
//
// Each listens on a port of its own while the ranks meet, says where through the store of the
// control channel, connects to all ranks below it and is connected to by all above it. A stranger
// at the port is closed; whoever does not come in time is named.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_client.h"
#include "trireme/exec/file_descriptor.h"
#include "trireme/transport/direct_transport.h"
#include "trireme/transport/wire.h"

namespace trireme {

struct ConnectedPeer {
  std::string host;                                   // as it named itself
  std::array<FileDescriptor, kNumUrgencies> sockets;  // not open: this rank
};

// By rank. All ranks call it at the same time.
[[nodiscard]] Result<std::vector<ConnectedPeer>> connect_peers(const DirectOptions& options,
                                                               ControlClient& client);

}  // namespace trireme
