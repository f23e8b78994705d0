#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "trireme/exec/stream_socket.h"
#include "trireme/transport/byte_channel.h"

namespace trireme {
namespace {

constexpr int kPatienceMs = 10'000;

// A connection whose one end is a channel and whose other end is a bare socket.
class SocketChannel : public testing::Test {
 protected:
  void SetUp() override {
    const FileDescriptor listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const SocketAddress address{.host = "127.0.0.1", .port = bound_port(listener).value()};
    peer_ = connect_until(address, deadline).value();
    pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&waiting, 1, kPatienceMs), 1);
    channel_ = make_socket_channel(accept_one(listener));
    epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {}};
    ASSERT_EQ(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, channel_->fd(), &event), 0);
  }

  void peer_sends(size_t num_bytes) {
    const std::vector<std::byte> bytes(num_bytes);
    ASSERT_EQ(::send(peer_.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  // Whether the kernel tells of something to receive.
  bool is_told(int patience_ms) {
    epoll_event event{};
    if (::epoll_wait(epoll_.get(), &event, 1, patience_ms) != 1) return false;
    channel_->hear(event.events);
    return channel_->can_receive();
  }
  // `first` bytes, and of what comes behind them up to `second`.
  ssize_t receive(size_t first, size_t second) {
    std::vector<std::byte> memory(first + second);
    std::array<iovec, 2> parts = {iovec{memory.data(), first},
                                  iovec{memory.data() + first, second}};
    return channel_->receive(parts);
  }
  // What was sent has come: this end's own answer of the kernel, whatever it tells.
  bool has_come(size_t num_bytes) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    std::vector<std::byte> memory(num_bytes);
    while (std::chrono::steady_clock::now() < end) {
      const ssize_t seen =
          ::recv(channel_->fd(), memory.data(), memory.size(), MSG_PEEK | MSG_DONTWAIT);
      if (seen == static_cast<ssize_t>(num_bytes)) return true;
    }
    return false;
  }

  FileDescriptor peer_;
  FileDescriptor epoll_;
  std::unique_ptr<ByteChannel> channel_;
};

TEST_F(SocketChannel, ThatLacksBytesOfTheFirstPartIsToldWhenAllOfThemHaveCome) {
  peer_sends(100);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(1000, 48), 100);
  EXPECT_FALSE(channel_->can_receive());
  EXPECT_TRUE(channel_->rest(Rest::kForBytes, false));
  peer_sends(899);
  ASSERT_TRUE(has_come(899));
  EXPECT_FALSE(is_told(0));
  peer_sends(1);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(900, 48), 900);
}

TEST_F(SocketChannel, ThatLacksBytesOfTheSecondPartAloneIsToldOfEach) {
  peer_sends(1000);
  ASSERT_TRUE(is_told(kPatienceMs));
  ASSERT_TRUE(has_come(1000));
  EXPECT_EQ(receive(1000, 48), 1000);
  EXPECT_TRUE(channel_->rest(Rest::kForBytes, false));
  peer_sends(1);
  EXPECT_TRUE(is_told(kPatienceMs));
}

TEST_F(SocketChannel, ThatLacksBytesIsToldOfTheEnd) {
  peer_sends(100);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(1000, 48), 100);
  EXPECT_TRUE(channel_->rest(Rest::kForBytes, false));
  peer_ = FileDescriptor();
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(900, 48), 0);
}

TEST_F(SocketChannel, ThatLacksMoreThanTheKernelKeepsIsToldOfAPart) {
  peer_sends(100);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(size_t{1} << 30, 48), 100);
  EXPECT_TRUE(channel_->rest(Rest::kForBytes, false));
  peer_sends(size_t{40} << 10);
  EXPECT_TRUE(is_told(kPatienceMs));
}

TEST_F(SocketChannel, ThatSleepsUntilItIsFullIsNotToldOfLess) {
  peer_sends(100);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(1000, 48), 100);
  EXPECT_TRUE(channel_->rest(Rest::kUntilFull, false));
  peer_sends(size_t{10} << 10);
  ASSERT_TRUE(has_come(size_t{10} << 10));
  EXPECT_FALSE(is_told(0));
  EXPECT_TRUE(channel_->rest(Rest::kAwake, false));
  EXPECT_TRUE(channel_->can_receive()) << "who looks itself finds it";
  EXPECT_EQ(receive(1000, 48), 1048);
  EXPECT_TRUE(channel_->can_receive());
  EXPECT_TRUE(channel_->rest(Rest::kUntilFull, false)) << "what is left can be left";
  EXPECT_FALSE(is_told(0));
  peer_sends(size_t{40} << 10);
  EXPECT_TRUE(is_told(kPatienceMs));
}

TEST_F(SocketChannel, ThatHasReadAllItAskedForLacksNothing) {
  peer_sends(100);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(1000, 48), 100);
  EXPECT_TRUE(channel_->rest(Rest::kForBytes, false));
  peer_sends(900 + 48 + 10);
  ASSERT_TRUE(is_told(kPatienceMs));
  ASSERT_TRUE(has_come(900 + 48 + 10));
  EXPECT_EQ(receive(900, 48), 948);
  EXPECT_TRUE(channel_->rest(Rest::kUntilFull, false));
  EXPECT_TRUE(channel_->rest(Rest::kForFrames, false));
  EXPECT_TRUE(is_told(kPatienceMs));
}

TEST_F(SocketChannel, ThatGoesOnToSleepForFramesIsToldOfWhatItHasLeft) {
  peer_sends(100);
  ASSERT_TRUE(is_told(kPatienceMs));
  EXPECT_EQ(receive(1000, 48), 100);
  EXPECT_TRUE(channel_->rest(Rest::kUntilFull, false));
  peer_sends(2000);
  ASSERT_TRUE(has_come(2000));
  EXPECT_FALSE(is_told(0));
  EXPECT_TRUE(channel_->rest(Rest::kForFrames, false));
  EXPECT_TRUE(is_told(kPatienceMs));
}

}  // namespace
}  // namespace trireme
