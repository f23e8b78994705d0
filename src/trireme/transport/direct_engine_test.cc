#include "trireme/transport/direct_engine.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include <gtest/gtest.h>

#include "trireme/transport/wire.h"

namespace trireme {
namespace {

// Counts what a channel has taken.
class CountingChannel : public ByteChannel {
 public:
  CountingChannel(std::unique_ptr<ByteChannel> channel, size_t& num_sent)
      : channel_(std::move(channel)), num_sent_(num_sent) {}

  [[nodiscard]] int fd() const override { return channel_->fd(); }
  void hear(uint32_t events) override { channel_->hear(events); }
  [[nodiscard]] bool can_send() const override { return channel_->can_send(); }
  [[nodiscard]] bool can_receive() const override { return channel_->can_receive(); }
  ssize_t send(std::span<iovec> parts) override {
    const ssize_t sent = channel_->send(parts);
    if (sent > 0) num_sent_ += static_cast<size_t>(sent);
    return sent;
  }
  ssize_t receive(std::span<iovec> parts) override { return channel_->receive(parts); }
  bool rest(Rest rest) override { return channel_->rest(rest); }

 private:
  std::unique_ptr<ByteChannel> channel_;
  size_t& num_sent_;
};

// Ranks 0 and 1, which take turns on the thread of the test.
class TwoEngines : public testing::Test {
 protected:
  void SetUp() override {
    std::array<std::vector<FrameStream>, 2> streams;
    for (size_t urgency = 0; urgency < kNumUrgencies; ++urgency) {
      std::array<int, 2> sockets{};
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()), 0);
      for (size_t rank = 0; rank < 2; ++rank) {
        streams[rank].emplace_back(std::make_unique<CountingChannel>(
            make_socket_channel(FileDescriptor(sockets[rank])), num_sent_[rank][urgency]));
      }
    }
    for (size_t rank = 0; rank < 2; ++rank) {
      std::vector<DirectPeer> peers(2);
      peers[1 - rank] = {.name = "the other rank",
                         .streams = std::make_unique<PeerStreams>(PeerStreams::Streams{
                             std::move(streams[rank][0]), std::move(streams[rank][1])})};
      engines_[rank] =
          std::make_unique<DirectEngine>(static_cast<int32_t>(rank), std::move(peers), WakeEvent());
    }
  }

  // A round of each; the tickets that have ended.
  std::array<std::vector<int64_t>, 2> take_turns() {
    std::array<std::vector<int64_t>, 2> ended;
    for (size_t rank = 0; rank < 2; ++rank) {
      engines_[rank]->hear(engines_[rank]->wait_events(std::chrono::milliseconds(0)));
      engines_[rank]->move();
      for (const DirectEnd& each : engines_[rank]->take_ended()) {
        ended[rank].push_back(each.ticket.value);
      }
    }
    return ended;
  }
  void post(size_t rank, int32_t ticket, DirectOperation::Kind kind, std::vector<std::byte>& bytes,
            Urgency urgency) {
    engines_[rank]->start({.ticket = Ticket(ticket),
                           .operation = {.kind = kind,
                                         .peer = static_cast<int32_t>(1 - rank),
                                         .tag = ticket,
                                         .bytes = bytes,
                                         .urgency = urgency}});
  }

  std::array<std::array<size_t, kNumUrgencies>, 2> num_sent_{};  // by rank and urgency
  std::array<std::unique_ptr<DirectEngine>, 2> engines_;
};

using Kind = DirectOperation::Kind;

TEST_F(TwoEngines, LetAnUrgentMessageOvertakeBulkWithinTwoFrames) {
  std::vector<std::byte> bulk(16 << 20);
  std::vector<std::byte> large(bulk.size());
  std::vector<std::byte> urgent(64 << 10, std::byte{7});
  std::vector<std::byte> small(urgent.size());
  post(0, 0, Kind::kSend, bulk, Urgency::kBulk);
  post(1, 0, Kind::kReceive, large, Urgency::kBulk);
  const size_t& bulk_sent = num_sent_[0][1];
  while (bulk_sent < bulk.size() / 4) take_turns();
  const size_t before = bulk_sent;
  post(0, 1, Kind::kSend, urgent, Urgency::kUrgent);
  post(1, 1, Kind::kReceive, small, Urgency::kUrgent);
  while (take_turns()[1] != std::vector<int64_t>{1}) {
    ASSERT_LT(bulk_sent, bulk.size());
  }
  EXPECT_EQ(small, urgent);
  EXPECT_LE(bulk_sent - before, 2 * (kMaxFrameData + kHeaderSize));
  while (take_turns()[1] != std::vector<int64_t>{0}) {
  }
}

TEST_F(TwoEngines, SendNothingButGrantsBeforeAReceiveIsPosted) {
  std::vector<std::byte> bytes(1 << 20);
  post(0, 0, Kind::kSend, bytes, Urgency::kBulk);
  post(0, 1, Kind::kReceive, bytes, Urgency::kBulk);
  for (int32_t i = 0; i < 100; ++i) take_turns();
  EXPECT_EQ(num_sent_[0], (std::array<size_t, 2>{kHeaderSize, 0}));
  EXPECT_FALSE(engines_[0]->can_move());
}

}  // namespace
}  // namespace trireme
