// PeerStreams: what a rank and one of its peers send each other: its streams, and who meets whom.
//
// The receive that is posted first for a (space, tag) meets the send that is posted first. The
// receiver grants its receive at once; the sender sends as soon as it has both. Used by one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "trireme/base/result.h"
#include "trireme/transport/frame_stream.h"
#include "trireme/transport/throughput_meter.h"
#include "trireme/transport/wire.h"

namespace trireme {

// What a send and its receive have in common.
struct MessageKey {
  uint64_t space = 0;
  uint64_t tag = 0;

  auto operator<=>(const MessageKey&) const = default;
};

// Called once when a message has arrived or left. With a number where the peer's operation is
// another one: nothing has travelled then, and the number is the peer's `whole`.
using OnMoved = std::function<void(std::optional<uint64_t> other_whole)>;
// Called with 0 when a send and its receive have met, then with the bytes of each frame that has
// left or arrived.
using OnProgress = std::function<void(uint64_t num_bytes)>;

struct MessageWatch {
  OnMoved on_moved;
  OnProgress on_progress;
};

class PeerStreams : public FrameReceiver {
 public:
  using Streams = std::array<FrameStream, kNumUrgencies>;

  explicit PeerStreams(Streams streams) : streams_(std::move(streams)) {}

  // `whole` says what operation a message is a part of, and is the same on both sides.
  void send(MessageKey key, std::span<const std::byte> bytes, uint64_t whole, Urgency urgency,
            MessageWatch watch);
  void receive(MessageKey key, std::span<std::byte> bytes, uint64_t whole, MessageWatch watch);

  [[nodiscard]] FrameStream& stream(Urgency urgency) {
    return streams_[static_cast<size_t>(urgency)];
  }
  // The peer closes its end: nothing that is posted now can come to an end.
  [[nodiscard]] bool is_ending() const;
  // The peer has closed all streams, so nothing more will come.
  [[nodiscard]] bool has_ended() const;
  // Why; empty where the peer has closed its end.
  [[nodiscard]] std::string end_reason() const;
  // What the peer sends has consequences beyond its receive: a message that waits for its grant, or
  // a part of an all-reduce.
  [[nodiscard]] bool wants_frames() const { return !sends_.empty() || num_reducing_ > 0; }
  // Somebody waits for this peer.
  [[nodiscard]] bool has_pending() const;
  [[nodiscard]] PeerThroughput throughput() const {
    return {.sent_bytes_per_s = sent_.bytes_per_s(),
            .received_bytes_per_s = received_.bytes_per_s()};
  }

  // FrameReceiver
  Result<std::byte*> place_of(const FrameHeader& header) override;
  Status take(const FrameHeader& header) override;

 private:
  struct Send {
    std::span<const std::byte> bytes;
    uint64_t whole = 0;
    Urgency urgency = Urgency::kUrgent;
    MessageWatch watch;
  };
  struct Grant {
    uint64_t id = 0;
    uint64_t size = 0;
    uint64_t whole = 0;
  };
  struct Receive {
    std::span<std::byte> bytes;
    bool is_reducing = false;  // of an all-reduce
    size_t num_arrived = 0;
    bool has_met = false;
    MessageWatch watch;
  };

  void start(Send send, const Grant& grant);

  Streams streams_;
  std::map<MessageKey, std::deque<Send>> sends_;    // without a grant
  std::map<MessageKey, std::deque<Grant>> grants_;  // without a send
  std::map<uint64_t, Receive> receives_;            // granted, by id
  uint64_t next_id_ = 0;
  size_t num_reducing_ = 0;
  size_t num_leaving_ = 0;  // sends that have their grant
  ThroughputMeter sent_;
  ThroughputMeter received_;
};

}  // namespace trireme
