#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "trireme/transport/byte_channel.h"

namespace trireme {
namespace {

// Well below what the kernel keeps of a connection at first, so that the mark can be reached. With
// 256 KB one random run of many did not end in its time; larger marks gain nothing that was seen.
constexpr size_t kMostAwaited = size_t{32} << 10;

size_t size_of(std::span<const iovec> parts) {
  size_t size = 0;
  for (const iovec& part : parts) size += part.iov_len;
  return size;
}

// Of the first part that has a size, after so many bytes of all; 0 where it is filled.
size_t left_of_first(std::span<const iovec> parts, size_t num_bytes) {
  const auto first =
      std::ranges::find_if(parts, [](const iovec& part) { return part.iov_len > 0; });
  return first == parts.end() || first->iov_len <= num_bytes ? 0 : first->iov_len - num_bytes;
}

class SocketChannel : public ByteChannel {
 public:
  explicit SocketChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const override { return socket_.get(); }

  void hear(uint32_t events) override {
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) is_closing_ = true;
    if ((events & EPOLLIN) != 0 || is_closing_) is_readable_ = true;
    if ((events & EPOLLOUT) != 0) is_blocked_ = false;
  }

  [[nodiscard]] bool can_send() const override { return !is_blocked_; }
  [[nodiscard]] bool can_receive() const override { return is_readable_; }

  ssize_t send(std::span<iovec> parts) override {
    const ssize_t sent = moved_by(::sendmsg, parts, MSG_NOSIGNAL | MSG_DONTWAIT);
    const bool is_full = sent < 0 ? errno == EAGAIN : static_cast<size_t>(sent) < size_of(parts);
    if (is_full) is_blocked_ = true;
    return sent;
  }

  ssize_t receive(std::span<iovec> parts) override {
    const ssize_t received = moved_by(::recvmsg, parts, MSG_DONTWAIT);
    // A read that is not filled has taken all there is, but for the end itself.
    const bool has_all = received < 0 || static_cast<size_t>(received) < size_of(parts);
    if (received > 0) has_received_ = true;
    if (has_all && !is_closing_) is_readable_ = false;
    num_lacking_ = left_of_first(parts, received < 0 ? 0 : static_cast<size_t>(received));
    return received;
  }

  bool rest(Rest rest, bool /*for_room*/) override {
    if (rest == Rest::kAwake) {
      if (is_unheard_) is_readable_ = true;
      is_unheard_ = false;
      return true;
    }
    // Where nothing has ever come, there is nothing to put off.
    if (rest == Rest::kUntilFull && has_received_ && !is_closing_) {
      if (is_readable_ || !is_unheard_) tell_from(kMostAwaited);
      is_readable_ = false;
      is_unheard_ = true;
      return true;
    }
    if (is_readable_) return false;
    // What is asked for comes in packets, each of which would wake this rank for a part of it.
    const size_t mark = std::clamp<size_t>(num_lacking_, 1, kMostAwaited);
    if (is_unheard_ || mark != mark_) tell_from(mark);
    is_unheard_ = false;
    return true;
  }

  [[nodiscard]] std::optional<SentCounts> sent_counts() const override {
    tcp_info info{};
    socklen_t size = sizeof info;
    // Other sockets than those of TCP refuse, and kernels before 4.10 do not know of it.
    if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
    if (size < offsetof(tcp_info, tcpi_busy_time) + sizeof info.tcpi_busy_time) return std::nullopt;
    // Where a window or a buffer is full, the link may well be, too: that time stays in.
    return SentCounts{.confirmed_bytes = info.tcpi_bytes_acked,
                      .busy_us = info.tcpi_busy_time,
                      .least_round_trip_us = info.tcpi_min_rtt};
  }

 private:
  // The kernel tells, and at once where there are as many already, of no fewer bytes, but of the
  // end.
  void tell_from(size_t num_bytes) {
    mark_ = num_bytes;
    const int mark = static_cast<int>(num_bytes);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark);
  }

  template <typename Call>
  ssize_t moved_by(Call call, std::span<iovec> parts, int flags) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t moved = call(socket_.get(), &message, flags);
    while (moved < 0 && errno == EINTR) moved = call(socket_.get(), &message, flags);
    return moved;
  }

  FileDescriptor socket_;
  size_t mark_ = 1;         // of tell_from()
  size_t num_lacking_ = 0;  // of what receive() was last asked for
  bool has_received_ = false;
  bool is_readable_ = false;  // there may be more
  bool is_unheard_ = false;   // there may be some of which the kernel has not told
  bool is_closing_ = false;   // the peer has closed, and what it sent before may still be there
  bool is_blocked_ = false;   // the kernel takes nothing until it says so
};

}  // namespace

std::unique_ptr<ByteChannel> make_socket_channel(FileDescriptor socket) {
  return std::make_unique<SocketChannel>(std::move(socket));
}

}  // namespace trireme
