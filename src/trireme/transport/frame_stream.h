// FrameStream: one connection to a peer, as frames in and out. Never blocks.
//
// Messages are cut into data frames as they are sent; grants and refusals go before the
// next of them. Data is read straight into where its receiver wants it. Used by one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/result.h"
#include "trireme/transport/byte_channel.h"
#include "trireme/transport/transfer_events.h"
#include "trireme/transport/wire.h"

namespace trireme {

// Where the frames of a peer go.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  // Where the `header.size` bytes of a data frame belong. An error ends the stream.
  virtual Result<std::byte*> place_of(const FrameHeader& header) = 0;
  // A frame is complete, its data in its place. An error ends the stream.
  virtual Status take(const FrameHeader& header) = 0;
};

// Called when a frame of a message has left, with its bytes of the message.
using OnFrame = std::function<void(uint64_t num_bytes, bool ends_message)>;

enum class StreamState : uint8_t {
  kMoved,  // and there may be more to do at once
  kIdle,   // nothing to do, or the channel takes or has no more now
  kEnded,  // by the peer, or by an error: end_reason()
};

class FrameStream {
 public:
  explicit FrameStream(std::unique_ptr<ByteChannel> channel) : channel_(std::move(channel)) {}

  [[nodiscard]] ByteChannel& channel() { return *channel_; }
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  // Empty where the peer has closed its end.
  [[nodiscard]] const std::string& end_reason() const { return end_reason_; }

  void queue(const FrameHeader& header) { headers_.push_back(header); }
  // Sends `bytes` to receive `id`. They stay as they are until `on_frame` says that all is sent.
  void queue_message(uint64_t id, std::span<const std::byte> bytes, OnFrame on_frame) {
    messages_.push_back({.id = id, .bytes = bytes, .on_frame = std::move(on_frame)});
  }
  // No frame of a message begins while it is held; one that has begun goes on.
  void hold(Hold hold) { is_held_ = hold == Hold::kHolds; }
  // Of those that queue() was given; and nothing else.
  [[nodiscard]] bool has_headers() const { return !headers_.empty(); }
  [[nodiscard]] bool has_only_headers() const {
    return has_headers() && messages_.empty() && !frame_.has_value();
  }
  [[nodiscard]] bool wants_to_send() const {
    return !has_ended_ && (frame_.has_value() || !headers_.empty() || can_begin_message_frame());
  }
  // What can be done at once.
  [[nodiscard]] bool can_send() const { return wants_to_send() && channel_->can_send(); }
  [[nodiscard]] bool can_receive() const { return !has_ended_ && channel_->can_receive(); }

  // Sends at most one frame.
  StreamState send_some();
  // Receives at most one frame and the header of the next.
  StreamState receive_some(FrameReceiver& receiver);

 private:
  struct Message {
    uint64_t id = 0;
    std::span<const std::byte> bytes;
    OnFrame on_frame;
    size_t num_framed = 0;
  };
  // What is on its way out: headers, as many as are there at once, and a data frame behind them.
  struct Frame {
    std::array<std::byte, 16 * kHeaderSize> headers;
    size_t headers_size = 0;
    std::span<const std::byte> data;
    size_t num_sent = 0;  // of both
    bool is_of_message = false;
    bool ends_message = false;
  };

  [[nodiscard]] bool can_begin_message_frame() const { return !messages_.empty() && !is_held_; }
  void begin_frame();
  void add_header(const FrameHeader& header);
  StreamState end(const std::string& reason);
  Status finish_header(FrameReceiver& receiver);

  std::unique_ptr<ByteChannel> channel_;
  bool has_ended_ = false;
  bool is_held_ = false;
  std::string end_reason_;
  std::deque<FrameHeader> headers_;
  std::deque<Message> messages_;
  std::optional<Frame> frame_;
  // Of the frame that comes in: bytes of its header that are there, then of its data.
  HeaderBytes incoming_{};
  size_t num_header_bytes_ = 0;
  FrameHeader header_;
  std::byte* place_ = nullptr;
  size_t num_data_bytes_ = 0;
};

}  // namespace trireme
