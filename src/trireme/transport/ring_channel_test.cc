#include "trireme/transport/ring_channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trireme/exec/wake_event.h"

namespace trireme {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

// Both ends of a stream, as two ranks have them.
class RingChannels : public testing::Test {
 protected:
  void SetUp() override {
    memory_ = make_ring_memory().value();
    std::array<int, 2> sockets{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()), 0);
    for (size_t side = 0; side < 2; ++side) {
      ends_[side] = make_ring_channel({.socket = FileDescriptor(sockets[side]),
                                       .memory = FileDescriptor(::dup(memory_.get())),
                                       .peer_wake = FileDescriptor(::dup(wakes_[1 - side].fd()))},
                                      static_cast<RingSide>(side))
                        .value();
    }
  }

  static ssize_t send(ByteChannel& channel, std::span<const std::byte> bytes) {
    std::array<iovec, 1> parts = {iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
    return channel.send(parts);
  }
  static ssize_t receive(ByteChannel& channel, std::span<std::byte> bytes) {
    std::array<iovec, 1> parts = {iovec{bytes.data(), bytes.size()}};
    return channel.receive(parts);
  }
  bool was_woken(size_t side) {
    uint64_t count = 0;
    return ::read(wakes_[side].fd(), &count, sizeof count) > 0;
  }
  // The counts of page 0, 128 bytes apart: heads and tails of both directions.
  void write_count(off_t index, uint64_t count) {
    ASSERT_EQ(::pwrite(memory_.get(), &count, sizeof count, index * 128), 8);
  }

  FileDescriptor memory_;
  std::array<WakeEvent, 2> wakes_;
  std::array<std::unique_ptr<ByteChannel>, 2> ends_;
};

TEST_F(RingChannels, CarryBytesRoundTheirEndInBothDirections) {
  const Bytes sent = numbered(5 * kRingBytes / 2);
  for (const size_t from : {0, 1}) {
    Bytes received(sent.size());
    size_t num_sent = 0;
    size_t num_received = 0;
    while (num_received < sent.size()) {
      const ssize_t out = send(*ends_[from], std::span(sent).subspan(num_sent));
      if (out > 0) num_sent += static_cast<size_t>(out);
      EXPECT_EQ(num_sent, std::min(sent.size(), num_received + kRingBytes));
      const size_t size = std::min<size_t>(received.size() - num_received, 100001);
      num_received += static_cast<size_t>(
          receive(*ends_[1 - from], std::span(received).subspan(num_received, size)));
    }
    EXPECT_EQ(received, sent);
  }
}

TEST_F(RingChannels, SayWhatCanBeDone) {
  Bytes bytes(kRingBytes);
  EXPECT_TRUE(ends_[0]->can_send());
  EXPECT_FALSE(ends_[1]->can_receive());
  EXPECT_EQ(receive(*ends_[1], bytes), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(send(*ends_[0], bytes), kRingBytes);
  EXPECT_FALSE(ends_[0]->can_send());
  EXPECT_TRUE(ends_[1]->can_receive());
  EXPECT_EQ(send(*ends_[0], bytes), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(RingChannels, WakeAPeerThatSleepsAndNoOther) {
  Bytes bytes(100);
  EXPECT_EQ(send(*ends_[0], bytes), 100);
  EXPECT_FALSE(was_woken(1));
  EXPECT_FALSE(ends_[1]->rest(Rest::kForBytes, false)) << "there is something already";
  EXPECT_EQ(receive(*ends_[1], bytes), 100);
  EXPECT_TRUE(ends_[1]->rest(Rest::kForBytes, false));
  EXPECT_EQ(send(*ends_[0], bytes), 100);
  EXPECT_TRUE(was_woken(1));
  EXPECT_EQ(send(*ends_[0], bytes), 100);
  EXPECT_FALSE(was_woken(1)) << "once is enough";
  EXPECT_TRUE(ends_[1]->rest(Rest::kAwake, false));
  EXPECT_EQ(send(*ends_[0], bytes), 100);
  EXPECT_FALSE(was_woken(1));
}

TEST_F(RingChannels, WakeAPeerThatSleepsForFramesWhenASendHasEnded) {
  Bytes bytes(kRingBytes / 2);
  EXPECT_TRUE(ends_[1]->rest(Rest::kForFrames, false));
  EXPECT_EQ(send(*ends_[0], bytes), kRingBytes / 2);
  EXPECT_TRUE(was_woken(1));
  EXPECT_FALSE(ends_[1]->rest(Rest::kForFrames, false)) << "there is something already";
}

TEST_F(RingChannels, LeaveAPeerAloneThatSleepsUntilTheyAreFull) {
  Bytes bytes(kRingBytes);
  EXPECT_TRUE(ends_[1]->rest(Rest::kUntilFull, false));
  EXPECT_EQ(send(*ends_[0], std::span(bytes).first(1)), 1);
  EXPECT_EQ(send(*ends_[0], bytes), kRingBytes - 1);
  EXPECT_FALSE(was_woken(1)) << "who sends does not wait for room yet";
  EXPECT_TRUE(ends_[1]->rest(Rest::kUntilFull, false)) << "what is there can be left";
  EXPECT_TRUE(ends_[0]->rest(Rest::kForBytes, true));
  EXPECT_TRUE(was_woken(1));
  EXPECT_FALSE(ends_[1]->rest(Rest::kUntilFull, false)) << "who sends waits for room";
  EXPECT_EQ(receive(*ends_[1], bytes), kRingBytes);
  EXPECT_TRUE(was_woken(0));
  EXPECT_TRUE(ends_[1]->rest(Rest::kUntilFull, false));
}

TEST_F(RingChannels, WakeASenderThatSleepsForRoomWhenHalfOfItIsFree) {
  Bytes bytes(kRingBytes);
  EXPECT_FALSE(ends_[0]->rest(Rest::kForBytes, true)) << "there is room";
  EXPECT_EQ(send(*ends_[0], bytes), kRingBytes);
  EXPECT_TRUE(ends_[0]->rest(Rest::kForBytes, true));
  EXPECT_GT(receive(*ends_[1], std::span(bytes).first(kRingBytes / 2 - 1)), 0);
  EXPECT_FALSE(was_woken(0));
  EXPECT_GT(receive(*ends_[1], std::span(bytes).first(1)), 0);
  EXPECT_TRUE(was_woken(0));
}

TEST_F(RingChannels, TellTheEndAfterAllThatWasSentBefore) {
  Bytes bytes(200);
  EXPECT_EQ(send(*ends_[0], std::span(bytes).first(100)), 100);
  const int socket = ends_[1]->fd();
  ends_[0].reset();
  std::byte byte{};
  EXPECT_EQ(::recv(socket, &byte, 1, 0), 0);
  ends_[1]->hear(EPOLLIN | EPOLLRDHUP | EPOLLHUP);
  EXPECT_EQ(receive(*ends_[1], bytes), 100);
  EXPECT_TRUE(ends_[1]->can_receive());
  EXPECT_EQ(receive(*ends_[1], bytes), 0);
}

TEST_F(RingChannels, RefuseCountsThatCannotBe) {
  Bytes bytes(100);
  write_count(0, kRingBytes + 1);  // the head of what the taker receives
  EXPECT_EQ(receive(*ends_[1], bytes), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_EQ(send(*ends_[1], numbered(kRingBytes)), kRingBytes);
  write_count(3, UINT64_MAX);  // the tail of what the taker sends
  EXPECT_TRUE(ends_[1]->can_send());
  EXPECT_EQ(send(*ends_[1], bytes), -1);
  EXPECT_EQ(errno, EPROTO);
}

TEST(RingMemory, ThatMayShrinkOrHasAnotherSizeIsRefused) {
  const auto refused = [](int seals, off_t size) {
    FileDescriptor memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(memory.get(), size), 0);
    EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, seals), 0);
    const auto made = make_ring_channel({.memory = std::move(memory)}, RingSide::kTaker);
    return made.ok() ? "" : made.error().message;
  };
  const auto size = static_cast<off_t>(4096 + 2 * kRingBytes);
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const std::string message = "the memory that a peer shares is not sealed, or has another size";
  EXPECT_EQ(refused(seals, size), "");
  EXPECT_EQ(refused(F_SEAL_GROW, size), message);
  EXPECT_EQ(refused(seals, size - 1), message);
}

}  // namespace
}  // namespace trireme
