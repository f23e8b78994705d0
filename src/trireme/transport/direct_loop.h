// DirectLoop: the thread of a rank that moves its bytes, and the tickets of what it moves.
//
// One thread posts and waits; the loop's thread alone touches streams and buffers. It sleeps in
// epoll_wait(). Each round takes what was posted, serves all urgent streams, and moves at most one
// frame of bulk in and one out, so bulk is never more than a frame ahead of what is urgent.
//
// The first failure fails all that is posted, now and later: a run that has lost a rank is over.
// From then on the loop touches no buffer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"
#include "trireme/exec/transport.h"
#include "trireme/exec/wake_event.h"
#include "trireme/transport/peer_streams.h"
#include "trireme/transport/reduction.h"

namespace trireme {

struct DirectPeer {
  std::string name;                      // "rank 2 (stage 0, replica 1) at 10.0.0.3"
  std::unique_ptr<PeerStreams> streams;  // null: this rank
};

struct DirectCommunicator {
  std::string name;
  std::vector<int32_t> members;
  uint64_t space = 0;  // not 0, and the same at all members
};

// What is posted. REQUIRES: a peer other than this rank, or a communicator that outlives the loop.
struct DirectOperation {
  enum class Kind : uint8_t { kSend, kReceive, kAllReduce };
  Kind kind = Kind::kSend;
  int32_t peer = -1;
  int32_t tag = 0;
  const DirectCommunicator* communicator = nullptr;
  DType dtype = DType::kUint8;
  std::span<std::byte> bytes;
  Urgency urgency = Urgency::kUrgent;
};

class DirectLoop {
 public:
  // `peers` by rank. A wait that takes longer than `timeout` is a failure.
  DirectLoop(int32_t rank, std::vector<DirectPeer> peers, std::chrono::milliseconds timeout);
  ~DirectLoop();
  DirectLoop(const DirectLoop&) = delete;
  DirectLoop& operator=(const DirectLoop&) = delete;

  Ticket post(const DirectOperation& operation);
  Status wait(Ticket ticket);

 private:
  struct Posted {
    Ticket ticket;
    DirectOperation operation;
  };
  // A stream of a peer as epoll has told it: epoll tells each change once (EPOLLET).
  struct Readiness {
    bool is_readable = false;  // there may be more
    bool is_closing = false;   // the peer has closed, and what it sent before may still be there
    bool is_blocked = false;   // the kernel takes nothing until it says so
  };
  enum class Life : uint8_t { kGoesOn, kEnds };

  // All below: on the loop's thread.
  void run();
  Life take_posted();
  void start(const Posted& posted);
  void start_all_reduce(const Posted& posted);
  void wait_for_events(bool may_sleep);
  void serve_urgent();
  void serve_bulk();
  // Whether a round has left something that can be done at once.
  [[nodiscard]] bool has_more() const;
  StreamState receive_on(size_t slot);
  StreamState send_on(size_t slot);
  void look_after_end(size_t slot);
  [[nodiscard]] std::string why_no_end(const DirectOperation& operation) const;
  void finish(Ticket ticket, std::optional<Error> error = {});
  void fail(const std::string& message);
  void publish_failure();

  // A slot is a stream: kNumUrgencies x rank + urgency.
  [[nodiscard]] FrameStream* stream_at(size_t slot) const;

  const int32_t rank_;
  const std::chrono::milliseconds timeout_;
  // Of the loop's thread:
  std::vector<DirectPeer> peers_;
  std::vector<Readiness> readiness_;  // by slot
  size_t last_received_ = 0;          // slot of bulk; the next one is served next
  size_t last_sent_ = 0;
  std::map<int32_t, std::unique_ptr<Reduction>> reductions_;  // by ticket
  std::map<uint64_t, uint64_t> next_tags_;                    // by space
  std::optional<std::string> failing_;
  FileDescriptor epoll_;

  WakeEvent wake_;
  std::mutex mutex_;  // guards everything below but the thread
  std::condition_variable has_changed_;
  std::vector<Posted> posted_;
  std::map<int32_t, DirectOperation> open_;       // by ticket: neither done nor failed
  std::map<int32_t, std::optional<Error>> done_;  // by ticket: not yet waited for
  std::optional<Error> failure_;
  std::optional<Ticket> awaited_;
  std::optional<Ticket> given_up_;
  int32_t next_ticket_ = 0;
  bool must_end_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace trireme
