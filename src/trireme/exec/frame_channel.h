// FrameChannel: one connection of the control channel, as messages in and out.
//
// Never blocks. The owner polls fd() for reading, and for writing while wants_to_send(); it calls
// receive_some() and send_some() when poll says so. Used by one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "trireme/base/result.h"
#include "trireme/exec/control_protocol.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

enum class ChannelState { kOpen, kEnded };

class FrameChannel {
 public:
  FrameChannel(FileDescriptor socket, size_t max_frame_bytes)
      : socket_(std::move(socket)), reader_(max_frame_bytes) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  void set_max_frame_bytes(size_t max_frame_bytes) { reader_.set_max_frame_bytes(max_frame_bytes); }

  void queue(const ControlMessage& message) { outgoing_ += encode_frame(message); }
  [[nodiscard]] bool wants_to_send() const { return !outgoing_.empty(); }
  // Sends what the kernel takes now.
  [[nodiscard]] ChannelState send_some();
  // Reads what is there. After kEnded, next() still hands out what arrived before the end.
  [[nodiscard]] ChannelState receive_some();
  [[nodiscard]] Result<std::optional<ControlMessage>> next() { return reader_.next(); }

 private:
  FileDescriptor socket_;
  FrameReader reader_;
  std::string outgoing_;
};

}  // namespace trireme
