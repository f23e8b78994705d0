// Transport: how bytes travel between ranks. Implementations: LoopbackTransport (ranks are threads
// of one process), DirectTransport in transport/ and GlooTransport in torch/ (ranks are processes).
//
// Nothing blocks but wait(). A buffer handed to post_* belongs to the transport until wait() of its
// ticket has returned; each ticket is waited for exactly once. Messages of one (sender, receiver,
// tag) arrive in the order in which they were posted, and sizes must agree. All members of a
// communicator issue its collectives in the same order. One rank uses its Transport from one
// thread. A failed transfer (lost peer, time-out, shutdown) is an Error from wait().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/base/strong_id.h"
#include "trireme/graph/dtype.h"

namespace trireme {

using Ticket = StrongId<struct TicketTag>;
using CommunicatorId = StrongId<struct CommunicatorTag>;

// What goes first where a transport can tell them apart.
enum class Urgency : uint8_t { kUrgent, kBulk };

// What a transport has seen of the way from this rank to a peer while something was on it.
struct MeasuredLink {
  double bytes_per_s = 0;
  double latency_s = 0;  // one way
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Joins the ranks `members` (ascending, this rank among them) into a communicator. Every member
  // calls it with the same name and members; a name is used once.
  virtual Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) = 0;

  virtual Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) = 0;
  virtual Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) = 0;
  // Element-wise sum in place; kFloat32 or kFloat64.
  virtual Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                         std::span<std::byte> bytes) = 0;
  virtual Status wait(Ticket ticket) = 0;
  // Of what is posted from now on; nothing: transfers are urgent, all-reduces are bulk. A transport
  // that cannot tell them apart ignores it.
  virtual void set_urgency(std::optional<Urgency> /*urgency*/) {}
  // Since the last call of it for this peer; nothing where too little has moved, nothing travels
  // over a network, or the transport does not know.
  virtual std::optional<MeasuredLink> take_measured(int32_t /*peer*/) { return std::nullopt; }
};

}  // namespace trireme
