#include "trireme/transport/frame_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/uio.h>

#include <fmt/format.h>

namespace trireme {

namespace {

// A peer that closes while something is on its way to it resets the connection.
std::string reason_of(int failure) {
  if (failure == EPROTO) return "the memory that it shares is damaged";
  return failure == ECONNRESET || failure == EPIPE ? "" : std::strerror(failure);
}

}  // namespace

StreamState FrameStream::end(const std::string& reason) {
  has_ended_ = true;
  end_reason_ = reason;
  return StreamState::kEnded;
}

void FrameStream::add_header(const FrameHeader& header) {
  std::ranges::copy(encode_header(header), &frame_->headers[frame_->headers_size]);
  frame_->headers_size += kHeaderSize;
}

void FrameStream::begin_frame() {
  frame_ = Frame();  // clang finds no default constructor for emplace() here
  while (!headers_.empty() && frame_->headers_size < frame_->headers.size()) {
    add_header(headers_.front());
    headers_.pop_front();
  }
  if (!can_begin_message_frame() || frame_->headers_size == frame_->headers.size()) return;
  Message& message = messages_.front();
  const size_t size = std::min(kMaxFrameData, message.bytes.size() - message.num_framed);
  add_header(
      {.kind = FrameKind::kData, .id = message.id, .offset = message.num_framed, .size = size});
  frame_->is_of_message = true;
  frame_->data = message.bytes.subspan(message.num_framed, size);
  message.num_framed += size;
  frame_->ends_message = message.num_framed == message.bytes.size();
}

StreamState FrameStream::send_some() {
  if (has_ended_) return StreamState::kEnded;
  if (!wants_to_send()) return StreamState::kIdle;
  if (!frame_.has_value()) begin_frame();
  Frame& frame = *frame_;
  const size_t header_sent = std::min(frame.num_sent, frame.headers_size);
  const size_t data_sent = frame.num_sent - header_sent;
  std::array<iovec, 2> parts = {
      iovec{frame.headers.data() + header_sent, frame.headers_size - header_sent},
      iovec{const_cast<std::byte*>(frame.data.data()) + data_sent, frame.data.size() - data_sent}};
  const ssize_t sent = channel_->send(parts);
  if (sent < 0) return errno == EAGAIN ? StreamState::kIdle : end(reason_of(errno));
  frame.num_sent += static_cast<size_t>(sent);
  if (frame.num_sent < frame.headers_size + frame.data.size()) return StreamState::kIdle;
  const bool is_of_message = frame.is_of_message;
  const uint64_t num_bytes = frame.data.size();
  const bool ends_message = frame.ends_message;
  frame_.reset();
  if (!is_of_message) return StreamState::kMoved;
  if (!ends_message) {
    messages_.front().on_frame(num_bytes, /*ends_message=*/false);
    return StreamState::kMoved;
  }
  const OnFrame on_frame = std::move(messages_.front().on_frame);
  messages_.pop_front();
  on_frame(num_bytes, /*ends_message=*/true);
  return StreamState::kMoved;
}

Status FrameStream::finish_header(FrameReceiver& receiver) {
  TRIREME_TRY(header_, decode_header(incoming_));
  num_data_bytes_ = 0;
  place_ = nullptr;
  if (header_.kind == FrameKind::kData) {
    TRIREME_TRY(place_, receiver.place_of(header_));
    if (header_.size > 0) return Status();
  }
  num_header_bytes_ = 0;
  return receiver.take(header_);
}

StreamState FrameStream::receive_some(FrameReceiver& receiver) {
  if (has_ended_) return StreamState::kEnded;
  const bool is_in_data = num_header_bytes_ == kHeaderSize;
  const size_t data_left = is_in_data ? static_cast<size_t>(header_.size) - num_data_bytes_ : 0;
  // The next header comes with the data before it: a system call less for each frame.
  const size_t header_begin = is_in_data ? 0 : num_header_bytes_;
  std::array<iovec, 2> parts = {iovec{is_in_data ? place_ + num_data_bytes_ : nullptr, data_left},
                                iovec{&incoming_[header_begin], kHeaderSize - header_begin}};
  const ssize_t received = channel_->receive(parts);
  if (received < 0) return errno == EAGAIN ? StreamState::kIdle : end(reason_of(errno));
  if (received == 0) return end("");
  const size_t num_data = std::min(static_cast<size_t>(received), data_left);
  const size_t num_header = static_cast<size_t>(received) - num_data;
  if (is_in_data) {
    num_data_bytes_ += num_data;
    if (num_data < data_left) return StreamState::kMoved;
    num_header_bytes_ = 0;
    if (const Status taken = receiver.take(header_); !taken.ok()) {
      return end(taken.error().message);
    }
  }
  num_header_bytes_ += num_header;
  if (num_header_bytes_ == kHeaderSize) {
    if (const Status finished = finish_header(receiver); !finished.ok()) {
      return end(finished.error().message);
    }
  }
  return StreamState::kMoved;
}

}  // namespace trireme
