#include "trireme/transport/direct_engine.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trireme/transport/ring_channel.h"
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
  bool rest(Rest rest, bool for_room) override { return channel_->rest(rest, for_room); }

 private:
  std::unique_ptr<ByteChannel> channel_;
  size_t& num_sent_;
};

// Writes down what it hears, and may act on it.
struct Heard : TransferListener {
  void hear(const TransferEvent& event, BulkControl& control) override {
    events.push_back(event);
    if (on_event) on_event(event, control);
  }

  std::vector<TransferEvent> events;
  std::function<void(const TransferEvent&, BulkControl&)> on_event;
};

// Ranks 0 and 1, which take turns on the thread of the test.
class TwoEngines : public testing::Test {
 protected:
  void SetUp() override {
    std::array<std::vector<FrameStream>, 2> streams;
    for (size_t urgency = 0; urgency < kNumUrgencies; ++urgency) {
      std::array<std::unique_ptr<ByteChannel>, 2> channels = make_channels();
      for (size_t rank = 0; rank < 2; ++rank) {
        streams[rank].emplace_back(
            std::make_unique<CountingChannel>(std::move(channels[rank]), num_sent_[rank][urgency]));
      }
    }
    for (size_t rank = 0; rank < 2; ++rank) {
      std::vector<DirectPeer> peers(2);
      peers[1 - rank] = {.name = "the other rank",
                         .streams = std::make_unique<PeerStreams>(PeerStreams::Streams{
                             std::move(streams[rank][0]), std::move(streams[rank][1])})};
      engines_[rank] = std::make_unique<DirectEngine>(static_cast<int32_t>(rank), std::move(peers),
                                                      std::move(wakes_[rank]), listener(rank));
    }
  }
  static std::array<FileDescriptor, 2> make_sockets() {
    std::array<int, 2> sockets{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()), 0);
    return {FileDescriptor(sockets[0]), FileDescriptor(sockets[1])};
  }
  // Of ranks 0 and 1.
  virtual std::array<std::unique_ptr<ByteChannel>, 2> make_channels() {
    std::array<FileDescriptor, 2> sockets = make_sockets();
    return {make_socket_channel(std::move(sockets[0])), make_socket_channel(std::move(sockets[1]))};
  }
  virtual TransferListener* listener(size_t rank) { return &heard_[rank]; }

  // A round of each; the tickets that have ended.
  using Ended = std::array<std::vector<int64_t>, 2>;
  Ended take_turns() {
    Ended ended;
    for (size_t rank = 0; rank < 2; ++rank) {
      engines_[rank]->hear(engines_[rank]->wait_events(std::chrono::milliseconds(0)));
      engines_[rank]->move();
      for (const DirectEnd& each : engines_[rank]->take_ended()) {
        ended[rank].push_back(each.ticket.value);
      }
    }
    return ended;
  }
  void take_turns_until(const std::function<bool(const Ended& ended)>& is_over) {
    for (int32_t round = 0; round < 1'000'000; ++round) {
      if (is_over(take_turns())) return;
    }
    FAIL() << "it never ends";
  }
  static auto has_ended(size_t rank, int64_t ticket) {
    return [=](const Ended& ended) { return ended[rank] == std::vector<int64_t>{ticket}; };
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

  std::array<WakeEvent, 2> wakes_;
  std::array<Heard, 2> heard_;
  std::array<std::array<size_t, kNumUrgencies>, 2> num_sent_{};  // by rank and urgency
  std::array<std::unique_ptr<DirectEngine>, 2> engines_;
};

using Kind = DirectOperation::Kind;

// To whom nobody listens.
class TwoEnginesOfOneHost : public TwoEngines {
 protected:
  std::array<std::unique_ptr<ByteChannel>, 2> make_channels() override {
    std::array<FileDescriptor, 2> sockets = make_sockets();
    const FileDescriptor memory = make_ring_memory().value();
    std::array<std::unique_ptr<ByteChannel>, 2> channels;
    for (const size_t rank : {0, 1}) {
      channels[rank] =
          make_ring_channel({.socket = std::move(sockets[rank]),
                             .memory = FileDescriptor(::dup(memory.get())),
                             .peer_wake = FileDescriptor(::dup(wakes_[1 - rank].fd()))},
                            static_cast<RingSide>(rank))
              .value();
    }
    return channels;
  }
  TransferListener* listener(size_t /*rank*/) override { return nullptr; }

  bool is_woken(size_t rank) {
    return engines_[rank]->wait_events(std::chrono::milliseconds(0)).count > 0;
  }
  // What is there, and nothing after it.
  void settle() {
    for (int32_t i = 0; i < 10; ++i) take_turns();
  }
};

TEST_F(TwoEnginesOfOneHost, WakeNobodyWhoComputesForWhatOnlyItsNextWaitNeeds) {
  std::vector<std::byte> sent(100);
  std::vector<std::byte> received(sent.size());
  settle();
  ASSERT_TRUE(engines_[0]->rest(nullptr));
  post(1, 0, Kind::kReceive, received, Urgency::kUrgent);
  engines_[1]->move();
  EXPECT_FALSE(is_woken(0)) << "a receive whose send is not posted";
  engines_[0]->rise();
  ASSERT_TRUE(engines_[1]->rest(nullptr));
  post(0, 0, Kind::kSend, sent, Urgency::kUrgent);
  while (engines_[0]->move()) {
  }
  EXPECT_EQ(engines_[0]->take_ended().size(), 1U);
  EXPECT_FALSE(is_woken(1)) << "a message that nobody waits for yet";
  EXPECT_TRUE(engines_[1]->rest(nullptr)) << "which can be left";
  const DirectOperation awaited{.kind = Kind::kReceive, .peer = 0};
  EXPECT_FALSE(engines_[1]->rest(&awaited));
}

TEST_F(TwoEnginesOfOneHost, WakeWhoWaits) {
  std::vector<std::byte> bytes(100);
  post(1, 0, Kind::kReceive, bytes, Urgency::kUrgent);
  settle();
  const DirectOperation awaited{.kind = Kind::kReceive, .peer = 0};
  ASSERT_TRUE(engines_[1]->rest(&awaited));
  std::vector<std::byte> sent(100);
  post(0, 0, Kind::kSend, sent, Urgency::kUrgent);
  engines_[0]->move();
  EXPECT_TRUE(is_woken(1));
}

TEST_F(TwoEnginesOfOneHost, WakeWhoComputesForAGrantThatAMessageWaitsFor) {
  std::vector<std::byte> bytes(100);
  post(0, 0, Kind::kSend, bytes, Urgency::kUrgent);
  settle();
  ASSERT_TRUE(engines_[0]->rest(nullptr));
  std::vector<std::byte> received(100);
  post(1, 0, Kind::kReceive, received, Urgency::kUrgent);
  engines_[1]->move();
  EXPECT_TRUE(is_woken(0));
}

TEST_F(TwoEnginesOfOneHost, WakeWhoComputesForItsPartOfAnAllReduce) {
  const DirectCommunicator world{.name = "world", .members = {0, 1}, .space = 1};
  std::array<std::vector<std::byte>, 2> numbers = {std::vector<std::byte>(1 << 20),
                                                   std::vector<std::byte>(1 << 20)};
  const auto reduce = [&](size_t rank) {
    engines_[rank]->start({.ticket = Ticket(0),
                           .operation = {.kind = Kind::kAllReduce,
                                         .communicator = &world,
                                         .dtype = DType::kFloat32,
                                         .bytes = numbers[rank],
                                         .urgency = Urgency::kBulk}});
  };
  engines_[1]->hold_bulk(0, Hold::kHolds);
  reduce(0);
  reduce(1);
  settle();
  // Its own part has left.
  ASSERT_TRUE(engines_[0]->rest(nullptr));
  EXPECT_FALSE(is_woken(0));
  engines_[1]->hold_bulk(0, Hold::kLetsGo);
  engines_[1]->move();
  EXPECT_TRUE(is_woken(0));
}

TEST_F(TwoEngines, LetAnUrgentMessageOvertakeBulkWithinTwoFrames) {
  std::vector<std::byte> bulk(16 << 20);
  std::vector<std::byte> large(bulk.size());
  std::vector<std::byte> urgent(64 << 10, std::byte{7});
  std::vector<std::byte> small(urgent.size());
  post(0, 0, Kind::kSend, bulk, Urgency::kBulk);
  post(1, 0, Kind::kReceive, large, Urgency::kBulk);
  const size_t& bulk_sent = num_sent_[0][1];
  take_turns_until([&](const Ended&) { return bulk_sent >= bulk.size() / 4; });
  const size_t before = bulk_sent;
  post(0, 1, Kind::kSend, urgent, Urgency::kUrgent);
  post(1, 1, Kind::kReceive, small, Urgency::kUrgent);
  take_turns_until(has_ended(1, 1));
  EXPECT_EQ(small, urgent);
  EXPECT_LE(bulk_sent - before, 2 * (kMaxFrameData + kHeaderSize));
  take_turns_until(has_ended(1, 0));
}

TEST_F(TwoEngines, SendNothingButGrantsBeforeAReceiveIsPosted) {
  std::vector<std::byte> bytes(1 << 20);
  post(0, 0, Kind::kSend, bytes, Urgency::kBulk);
  post(0, 1, Kind::kReceive, bytes, Urgency::kBulk);
  for (int32_t i = 0; i < 100; ++i) take_turns();
  EXPECT_EQ(num_sent_[0], (std::array<size_t, 2>{kHeaderSize, 0}));
  EXPECT_FALSE(engines_[0]->can_move());
}

TEST_F(TwoEngines, TellWhenATransferStartsProgressesAndEnds) {
  using enum TransferEvent::Kind;
  std::vector<std::byte> sent(kMaxFrameData + 100);
  std::vector<std::byte> received(sent.size());
  post(0, 5, Kind::kSend, sent, Urgency::kUrgent);
  for (int32_t i = 0; i < 10; ++i) take_turns();
  EXPECT_TRUE(heard_[0].events.empty()) << "its receive is not posted";
  post(1, 5, Kind::kReceive, received, Urgency::kUrgent);
  take_turns_until([](const Ended& ended) { return !ended[1].empty(); });
  const uint64_t size = sent.size();
  for (const size_t rank : {0, 1}) {
    const Ticket ticket(5);
    const auto peer = static_cast<int32_t>(1 - rank);
    EXPECT_EQ(heard_[rank].events,
              (std::vector<TransferEvent>{{kStart, ticket, peer, 0},
                                          {kProgress, ticket, peer, kMaxFrameData},
                                          {kProgress, ticket, peer, size},
                                          {kEnd, ticket, peer, size}}));
  }
}

TEST_F(TwoEngines, TellOfAnAllReduceOnce) {
  using enum TransferEvent::Kind;
  const DirectCommunicator world{.name = "world", .members = {0, 1}, .space = 1};
  std::array<std::vector<std::byte>, 2> numbers = {std::vector<std::byte>(1 << 20),
                                                   std::vector<std::byte>(1 << 20)};
  for (const size_t rank : {0, 1}) {
    engines_[rank]->start({.ticket = Ticket(0),
                           .operation = {.kind = Kind::kAllReduce,
                                         .communicator = &world,
                                         .dtype = DType::kFloat32,
                                         .bytes = numbers[rank],
                                         .urgency = Urgency::kBulk}});
  }
  take_turns_until([](const Ended& ended) { return !ended[0].empty(); });
  const std::vector<TransferEvent>& events = heard_[0].events;
  EXPECT_EQ(events.front(), (TransferEvent{kStart, Ticket(0), 1, 0}));
  // Of two members, each sends and receives half twice: parts and sums.
  EXPECT_EQ(events.back(), (TransferEvent{kEnd, Ticket(0), -1, 2 << 20}));
  for (const TransferEvent& each : std::span(events).subspan(1, events.size() - 2)) {
    EXPECT_EQ(each.kind, kProgress);
  }
}

TEST_F(TwoEngines, HoldBulkAsLongAsAListenerSaysSo) {
  std::vector<std::byte> bulk(1 << 20);
  std::vector<std::byte> large(bulk.size());
  std::vector<std::byte> urgent(100);
  std::vector<std::byte> small(urgent.size());
  // From the first frame of bulk on until the urgent message has left.
  heard_[0].on_event = [](const TransferEvent& event, BulkControl& control) {
    if (event.ticket == Ticket(0) && event.num_bytes == kMaxFrameData) {
      control.hold_bulk(1, Hold::kHolds);
    } else if (event.ticket == Ticket(1) && event.kind == TransferEvent::Kind::kEnd) {
      control.hold_bulk(1, Hold::kLetsGo);
    }
  };
  post(0, 0, Kind::kSend, bulk, Urgency::kBulk);
  post(1, 0, Kind::kReceive, large, Urgency::kBulk);
  const size_t& bulk_sent = num_sent_[0][1];
  for (int32_t i = 0; i < 50; ++i) take_turns();
  EXPECT_EQ(bulk_sent, kMaxFrameData + kHeaderSize);
  EXPECT_FALSE(engines_[0]->can_move());
  post(0, 1, Kind::kSend, urgent, Urgency::kUrgent);
  post(1, 1, Kind::kReceive, small, Urgency::kUrgent);
  take_turns_until(has_ended(1, 1));
  take_turns_until(has_ended(1, 0));
  EXPECT_EQ(bulk_sent, bulk.size() + 4 * kHeaderSize);
}

TEST_F(TwoEngines, KnowHowFastBytesGoToAPeer) {
  EXPECT_FALSE(engines_[0]->throughput(1).sent_bytes_per_s.has_value());
  EXPECT_FALSE(engines_[0]->throughput(0).sent_bytes_per_s.has_value());
  std::vector<std::byte> sent(4 << 20);
  std::vector<std::byte> received(sent.size());
  post(0, 0, Kind::kSend, sent, Urgency::kUrgent);
  post(1, 0, Kind::kReceive, received, Urgency::kUrgent);
  const auto begin = std::chrono::steady_clock::now();
  take_turns_until([](const Ended& ended) { return !ended[1].empty(); });
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // What is recent counts for more, so this is no exact bound.
  const double least = static_cast<double>(sent.size()) / seconds / 10;
  EXPECT_GE(*engines_[0]->throughput(1).sent_bytes_per_s, least);
  EXPECT_GE(*engines_[1]->throughput(0).received_bytes_per_s, least);
  EXPECT_FALSE(engines_[0]->throughput(1).received_bytes_per_s.has_value());
}

}  // namespace
}  // namespace trireme
