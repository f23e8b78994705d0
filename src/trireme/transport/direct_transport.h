// DirectTransport: our own wire between ranks that are processes, on one host or several.
//
//   tickets         DirectLoop              who drives: the rank as it waits, or a thread
//   all that moves  DirectEngine            one epoll
//   a peer          PeerStreams                    grants: who meets whom
//   a stream        FrameStream             one for each urgency
//   its bytes       ByteChannel             TCP, or on one host memory that both ranks share
//   a frame         wire.h                  what it looks like
//   an all-reduce   Reduction               pieces to owners, who add in the order of ranks
//
// Transfers are urgent and all-reduces are bulk: an urgent message waits for at most one frame of
// bulk. The kernel's queues are kept short (TCP_NOTSENT_LOWAT) for the same reason.
//
// What differs from Gloo: sums depend on no timing and no chunk size, a size that does not fit
// fails the wait in all cases, and every error names the peer and its address.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_client.h"
#include "trireme/exec/run_failure.h"
#include "trireme/exec/transport.h"
#include "trireme/transport/direct_loop.h"
#include "trireme/transport/transfer_events.h"

namespace trireme {

struct DirectOptions {
  int32_t rank = 0;
  int32_t num_ranks = 1;
  std::string host = "127.0.0.1";  // the name or address that other ranks reach this one by
  DescribeRank describe_rank = describe_bare_rank;                      // for messages
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);  // for all ranks to come
  std::chrono::milliseconds timeout = std::chrono::minutes(30);         // of a wait
  bool shares_memory = true;             // with ranks of this host that share it, too
  TransferListener* listener = nullptr;  // that outlives the transport
};

class DirectTransport : public Transport {
 public:
  DirectTransport(const DirectOptions& options, std::vector<DirectPeer> peers, WakeEvent wake);

  Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) override;
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override;
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override;
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override;
  Status wait(Ticket ticket) override { return loop_.wait(ticket); }
  void set_urgency(std::optional<Urgency> urgency) override { urgency_ = urgency; }
  std::optional<MeasuredLink> take_measured(int32_t peer) override {
    return loop_.take_measured(peer);
  }

  // As BulkControl, from any thread, but not from a TransferListener. REQUIRES of both: a rank.
  void hold_bulk(int32_t peer, Hold hold) { loop_.hold_bulk(peer, hold); }
  [[nodiscard]] PeerThroughput throughput(int32_t peer) { return loop_.throughput(peer); }

 private:
  Result<Ticket> post_transfer(const DirectOperation& operation);

  int32_t rank_;
  int32_t num_ranks_;
  std::optional<Urgency> urgency_;
  std::deque<DirectCommunicator> communicators_;  // the loop has their addresses
  DirectLoop loop_;
};

// The ranks find each other through the supervisor's store, seen through `client`, which is used
// here only.
[[nodiscard]] Result<std::unique_ptr<DirectTransport>> make_direct_transport(
    const DirectOptions& options, ControlClient& client);

}  // namespace trireme
