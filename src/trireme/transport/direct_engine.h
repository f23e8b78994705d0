// DirectEngine: what a rank has posted, and the streams that move it.
//
// Whoever drives calls start() for what is posted, move() as long as it says so, and wait_events()
// where nothing can be done; what has ended is in take_ended(). Of its functions only wait_events()
// and wake() may be called from several threads at once; for the others one has the engine at a
// time.
//
// A round of move() goes over all urgent streams, and only where none of them has anything to do
// over those of bulk, of which at most one sends and one receives a frame. So bulk is never more
// than a frame ahead of what is urgent.
//
// The first failure fails all that is posted, now and later: a run that has lost a rank is over.
// From then on the engine touches no buffer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/epoll.h>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"
#include "trireme/exec/transport.h"
#include "trireme/exec/wake_event.h"
#include "trireme/transport/link_meter.h"
#include "trireme/transport/peer_streams.h"
#include "trireme/transport/reduction.h"

namespace trireme {

struct DirectPeer {
  std::string name;                      // "rank 2 (stage 0, replica 1) at 10.0.0.3"
  std::unique_ptr<PeerStreams> streams;  // null: this rank
  bool shares_memory = false;
};

struct DirectCommunicator {
  std::string name;
  std::vector<int32_t> members;
  uint64_t space = 0;  // not 0, and the same at all members
};

// What is posted. REQUIRES: a peer other than this rank, or a communicator that outlives the
// engine.
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

struct DirectPosted {
  Ticket ticket;
  DirectOperation operation;
};

struct DirectEnd {
  Ticket ticket;
  std::optional<Error> error;
};

// What epoll has told.
struct DirectEvents {
  std::array<epoll_event, 64> events;
  size_t count = 0;
};

class DirectEngine : public BulkControl {
 public:
  // `peers` by rank, who wake this one by `wake`. `listener` may be null.
  DirectEngine(int32_t rank, std::vector<DirectPeer> peers, WakeEvent wake,
               TransferListener* listener = nullptr);
  DirectEngine(const DirectEngine&) = delete;
  DirectEngine& operator=(const DirectEngine&) = delete;

  void start(const DirectPosted& posted);
  // A round; whether there may be more to do at once.
  bool move();
  // At most one frame of each urgent stream, in and out; whether there may be more.
  bool move_urgent();
  // Whether move() would find something to do.
  [[nodiscard]] bool can_move() const;

  // Sleeps until something has changed, `timeout` has passed (negative: never), or wake().
  [[nodiscard]] DirectEvents wait_events(std::chrono::milliseconds timeout) const;
  void hear(const DirectEvents& events);
  // Of the kernel's: readable when wait_events() would find something.
  [[nodiscard]] int epoll_fd() const { return epoll_.get(); }
  // Before wait_events(), or before nobody drives for a while: what the peers are to wake this rank
  // for. `awaited`: by the rank; null: it computes, and is not disturbed for what only its next
  // wait needs. False: move() may find something that cannot be left. Holds until rise() and may be
  // said again.
  bool rest(const DirectOperation* awaited);
  void rise();
  // Whether looking at memory tells of something new sooner than the kernel does.
  [[nodiscard]] bool shares_memory() const { return shares_memory_; }
  [[nodiscard]] bool has_sockets() const { return has_sockets_; }
  // Ends the sleep of one thread, or keeps the next one from sleeping.
  void wake() { wake_.notify(); }

  [[nodiscard]] std::vector<DirectEnd> take_ended();
  void hold_bulk(int32_t peer, Hold hold) override;
  [[nodiscard]] PeerThroughput throughput(int32_t peer) const;
  // As Transport::take_measured().
  [[nodiscard]] std::optional<MeasuredLink> take_measured(int32_t peer);
  // Of an operation that has not ended.
  [[nodiscard]] uint64_t num_moved(Ticket ticket) const;
  // Fails all because nothing of `operation` has moved for `timeout`.
  void give_up(const DirectOperation& operation, std::chrono::milliseconds timeout);
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  void look_at_links();
  void start_transfer(const DirectPosted& posted);
  void start_all_reduce(const DirectPosted& posted);
  // Whether there may be more.
  bool serve_urgent();
  bool serve_bulk();
  [[nodiscard]] Rest rest_of(size_t rank, const DirectOperation* awaited) const;
  // One frame at most. Slots are kNumUrgencies x rank + urgency.
  bool receive_on(size_t slot);
  bool send_on(size_t slot);
  void look_after_end(size_t slot);
  void stop_watching(FrameStream& stream);
  [[nodiscard]] std::string why_no_end(const DirectOperation& operation,
                                       std::chrono::milliseconds timeout) const;
  void tell_progress(Ticket ticket, int32_t peer, uint64_t num_bytes);
  void end(const DirectPosted& posted, std::optional<Error> error = {});
  void fail(const std::string& message);
  // Only at the end of what the caller does: it may be amid a stream when something fails.
  void settle_failure();

  const int32_t rank_;
  TransferListener* const listener_;
  std::vector<DirectPeer> peers_;
  std::vector<FrameStream*> streams_;  // by slot; null: this rank
  std::vector<size_t> num_held_;       // by rank: rounds in which its grants were held back
  size_t last_received_ = 0;           // rank whose bulk came last; the next one is served next
  size_t last_sent_ = 0;
  std::map<int32_t, std::unique_ptr<Reduction>> reductions_;  // by ticket
  std::map<uint64_t, uint64_t> next_tags_;                    // by space
  std::map<int32_t, uint64_t> moved_;  // by ticket: bytes of what has started
  std::vector<DirectEnd> ended_;
  std::optional<Error> failure_;
  bool is_settled_ = false;
  bool shares_memory_ = false;
  bool has_sockets_ = false;
  LinkMeter links_;
  std::chrono::steady_clock::duration look_pause_;
  std::chrono::steady_clock::time_point last_look_;
  FileDescriptor epoll_;
  WakeEvent wake_;
};

}  // namespace trireme
