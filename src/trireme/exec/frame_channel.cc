#include "trireme/exec/frame_channel.h"

#include <array>
#include <cerrno>
#include <string_view>

#include <sys/socket.h>

namespace trireme {

ChannelState FrameChannel::send_some() {
  size_t sent = 0;
  ChannelState state = ChannelState::kOpen;
  while (sent < outgoing_.size()) {
    const ssize_t taken =
        ::send(socket_.get(), outgoing_.data() + sent, outgoing_.size() - sent, MSG_NOSIGNAL);
    if (taken >= 0) {
      sent += static_cast<size_t>(taken);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) state = ChannelState::kEnded;
    break;
  }
  outgoing_.erase(0, sent);
  return state;
}

ChannelState FrameChannel::receive_some() {
  std::array<char, 1 << 16> bytes;
  // Bounded, so that a peer that never stops sending cannot starve the others.
  for (int round = 0; round < 16; ++round) {
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      reader_.append(std::string_view(bytes.data(), static_cast<size_t>(got)));
      continue;
    }
    if (got == 0) return ChannelState::kEnded;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? ChannelState::kOpen : ChannelState::kEnded;
  }
  return ChannelState::kOpen;
}

}  // namespace trireme
