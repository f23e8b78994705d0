// What somebody who decides what goes when learns of the transfers of a rank, and what it can do.
//
//   start      the receive and the send have met: bytes may move from now on
//   progress   after each frame, of at most kMaxFrameData bytes
//   end        as wait() will tell it
//
// A TransferListener hears events as they happen, on whichever thread drives the transport, and
// must return at once: it neither blocks nor posts nor waits. It may hold bulk and let it go there
// and then, through the BulkControl that it is given; elsewhere DirectTransport has the same.
// After a failure of the transport nothing more is heard.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/exec/transport.h"

namespace trireme {

struct TransferEvent {
  enum class Kind : uint8_t { kStart, kProgress, kEnd };
  Kind kind = Kind::kStart;
  Ticket ticket;
  // That sends or receives; of an all-reduce whose message has moved, -1 at its end.
  int32_t peer = -1;
  // That this rank has sent and received for the ticket. An all-reduce moves more than its size.
  uint64_t num_bytes = 0;

  bool operator==(const TransferEvent&) const = default;
};

enum class Hold : uint8_t { kHolds, kLetsGo };

class BulkControl {
 public:
  virtual ~BulkControl() = default;
  // Of what this rank sends to the peer: no frame of bulk begins while it is held. What is urgent,
  // and the grants by which the peer may send, go on. A wait for what is held may time out.
  virtual void hold_bulk(int32_t peer, Hold hold) = 0;
};

class TransferListener {
 public:
  virtual ~TransferListener() = default;
  virtual void hear(const TransferEvent& event, BulkControl& control) = 0;
};

// Of the recent past; nothing where nothing has moved yet.
struct PeerThroughput {
  std::optional<double> sent_bytes_per_s;
  std::optional<double> received_bytes_per_s;
};

}  // namespace trireme
