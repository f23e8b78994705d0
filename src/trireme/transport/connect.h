// How the ranks of a run find each other for their transfers.
//
// Each listens on a port of its own while the ranks meet, says where through the store of the
// control channel, connects to all ranks below it and is connected to by all above it. A stranger
// at the port is closed; whoever does not come in time is named.
//
// Ranks of one host meet at a local socket instead, which passes the memory that they share. That
// they are on one host is found by trying: the name of the socket is drawn at random and is known
// to one kernel and network name space, so equal addresses deceive nobody. What does not work out
// goes by TCP.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_client.h"
#include "trireme/exec/wake_event.h"
#include "trireme/transport/byte_channel.h"
#include "trireme/transport/direct_transport.h"
#include "trireme/transport/wire.h"

namespace trireme {

struct ConnectedPeer {
  std::string host;                                                  // as it named itself
  std::array<std::unique_ptr<ByteChannel>, kNumUrgencies> channels;  // null: this rank
  bool shares_memory = false;                                        // at least one channel does
};

// By rank. All ranks call it at the same time. Peers that share memory wake this rank by `wake`.
[[nodiscard]] Result<std::vector<ConnectedPeer>> connect_peers(const DirectOptions& options,
                                                               const WakeEvent& wake,
                                                               ControlClient& client);

}  // namespace trireme
