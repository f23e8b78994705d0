#include "trireme/transport/direct_transport.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"
#include "trireme/exec/control_protocol.h"
#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/stream_socket.h"
#include "trireme/exec/transport_acceptance.h"
#include "trireme/transport/direct_ranks.h"
#include "trireme/transport/local_socket.h"
#include "trireme/transport/reduction.h"
#include "trireme/transport/wire.h"

namespace trireme {
namespace {

using Ranks = std::vector<std::unique_ptr<DirectTransport>>;
using Transports = std::vector<std::unique_ptr<Transport>>;

INSTANTIATE_TEST_SUITE_P(
    Direct, TransportAcceptance,
    testing::Values(
        TransportCase{.name = "shared_memory",
                      .make = [](int32_t n) { return as_transports(make_direct_ranks(n)); }},
        TransportCase{
            .name = "tcp",
            .make = [](int32_t n) { return as_transports(make_direct_ranks(n, by_tcp)); }}),
    [](const auto& row) { return row.param.name; });

template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

Transports make_loopback_ranks(int32_t num_ranks) {
  const auto network = make_loopback_network(num_ranks);
  Transports ranks;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(make_loopback_transport(network, rank));
  }
  return ranks;
}

// What each rank has after an all-reduce of numbers whose sum depends on the order.
template <typename Number>
std::vector<std::vector<Number>> sums(const Transports& ranks, size_t count, DType dtype) {
  const auto num_ranks = static_cast<int32_t>(ranks.size());
  std::vector<int32_t> members(ranks.size());
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::vector<Number>> all(ranks.size());
  const std::vector<Status> outcomes = run_ranks(num_ranks, [&](int32_t rank) -> Status {
    Transport& transport = *ranks[static_cast<size_t>(rank)];
    std::mt19937 random(static_cast<uint32_t>(rank));
    std::vector<Number>& own = all[static_cast<size_t>(rank)];
    for (size_t i = 0; i < count; ++i) {
      own.push_back(std::ldexp(static_cast<Number>(random()), static_cast<int>(random() % 64)));
    }
    TRIREME_TRY(const CommunicatorId world,
                transport.join("world." + std::to_string(count), members));
    TRIREME_TRY(const Ticket ticket, transport.post_all_reduce(world, dtype, bytes_of(own)));
    return transport.wait(ticket);
  });
  for (const Status& outcome : outcomes) EXPECT_EQ(message_of(outcome), "");
  return all;
}

TEST(DirectTransport, SumsToTheBitAsTheLoopbackDoes) {
  for (const int32_t num_ranks : {1, 2, 3}) {
    const Transports direct = as_transports(make_direct_ranks(num_ranks));
    const Transports loopback = make_loopback_ranks(num_ranks);
    const size_t segment = kMaxSegmentBytes / sizeof(float);
    const size_t piece = segment * static_cast<size_t>(num_ranks);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, kMaxExchangedBytes / 4,
                               kMaxExchangedBytes / 4 + 1, piece, piece + 1, 5 * piece - 1}) {
      EXPECT_EQ(sums<float>(direct, count, DType::kFloat32),
                sums<float>(loopback, count, DType::kFloat32))
          << num_ranks << " ranks, " << count << " numbers";
    }
    EXPECT_EQ(sums<double>(direct, 100001, DType::kFloat64),
              sums<double>(loopback, 100001, DType::kFloat64));
  }
}

TEST(DirectTransport, NamesTheRankThatLeftAndItsAddress) {
  Ranks ranks = make_direct_ranks(3, [](DirectOptions& options) {
    options.describe_rank = [](int32_t rank) { return "rank " + std::to_string(rank) + " (x)"; };
  });
  std::vector<float> buffer(1);
  std::vector<float> other(1);
  const CommunicatorId world = ranks[0]->join("world", {0, 1, 2}).value();
  const Ticket reduce = ranks[0]->post_all_reduce(world, DType::kFloat32, bytes_of(buffer)).value();
  ranks[2].reset();
  const std::string message = "rank 2 (x) at 127.0.0.1 has closed its connection";
  EXPECT_EQ(message_of(ranks[0]->wait(reduce)), message);
  const Ticket late = ranks[0]->post_receive(1, 0, bytes_of(other)).value();
  EXPECT_EQ(message_of(ranks[0]->wait(late)), message);
  // Nobody waited for rank 2 here.
  const Ticket own = ranks[1]->post_receive(2, 0, bytes_of(other)).value();
  EXPECT_EQ(message_of(ranks[1]->wait(own)), message);
}

TEST(DirectTransport, ARankThatLeavesAfterItsPartDisturbsNobody) {
  Ranks ranks = make_direct_ranks(3);
  std::vector<int32_t> sent(1 << 20, 7);
  std::vector<int32_t> received(1 << 20);
  const Ticket receive = ranks[0]->post_receive(2, 0, bytes_of(received)).value();
  const Ticket send = ranks[2]->post_send(0, 0, bytes_of(sent)).value();
  EXPECT_EQ(message_of(ranks[2]->wait(send)), "");
  ranks[2].reset();
  EXPECT_EQ(message_of(ranks[0]->wait(receive)), "");
  EXPECT_EQ(received, sent);
  const Ticket next = ranks[0]->post_receive(1, 0, bytes_of(received)).value();
  const Ticket last = ranks[1]->post_send(0, 0, bytes_of(sent)).value();
  EXPECT_EQ(message_of(ranks[1]->wait(last)), "");
  EXPECT_EQ(message_of(ranks[0]->wait(next)), "");
}

TEST(DirectTransport, AWaitThatTakesTooLongNamesThePeerAndWhatItOwes) {
  const auto impatient = [](DirectOptions& options) {
    options.timeout = std::chrono::milliseconds(50);
  };
  std::vector<float> buffer(4);
  std::vector<float> other(4);  // before the ranks, whose loops may still send them
  Ranks ranks = make_direct_ranks(3, impatient);
  const Ticket receive = ranks[0]->post_receive(1, 3, bytes_of(buffer)).value();
  EXPECT_EQ(message_of(ranks[0]->wait(receive)),
            "rank 1 at 127.0.0.1 has not sent 16 bytes with tag 3 for 0.05 s");
  const Ticket send = ranks[1]->post_send(2, 3, bytes_of(buffer)).value();
  EXPECT_EQ(message_of(ranks[1]->wait(send)),
            "rank 2 at 127.0.0.1 has not taken 16 bytes with tag 3 for 0.05 s");
  ranks = make_direct_ranks(3, impatient);
  std::vector<Ticket> tickets;
  for (const size_t rank : {0, 1}) {
    const CommunicatorId world = ranks[rank]->join("world", {0, 1, 2}).value();
    std::vector<float>& own = rank == 0 ? buffer : other;
    tickets.push_back(ranks[rank]->post_all_reduce(world, DType::kFloat32, bytes_of(own)).value());
  }
  EXPECT_EQ(message_of(ranks[0]->wait(tickets[0])),
            "communicator world: rank 2 at 127.0.0.1 took no part in an "
            "all-reduce for 0.05 s");
}

// The memory that this process has.
[[maybe_unused]] int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // whose memory it would count
TEST(DirectTransport, ASenderKeepsNothingOfWhatAReceiverDoesNotWantYet) {
  for (const auto& change : {std::function<void(DirectOptions&)>(), {by_tcp}}) {
    const Ranks ranks = make_direct_ranks(2, change);
    std::vector<std::vector<std::byte>> sent(16, std::vector<std::byte>(1 << 20, std::byte{1}));
    std::vector<std::vector<std::byte>> received(16, std::vector<std::byte>(1 << 20, std::byte{2}));
    std::vector<int32_t> word(1);
    std::vector<int32_t> same(1);
    std::vector<Ticket> sends;
    const int64_t before = resident_bytes();
    for (auto& each : sent) sends.push_back(ranks[0]->post_send(1, 0, each).value());
    // What is posted later has come, so what came before would have, too.
    const Ticket last = ranks[0]->post_send(1, 1, bytes_of(word)).value();
    const Ticket taken = ranks[1]->post_receive(0, 1, bytes_of(same)).value();
    EXPECT_EQ(message_of(ranks[0]->wait(last)), "");
    EXPECT_EQ(message_of(ranks[1]->wait(taken)), "");
    EXPECT_LT(resident_bytes() - before, 4 << 20);
    std::vector<Ticket> receives;
    for (auto& each : received) receives.push_back(ranks[1]->post_receive(0, 0, each).value());
    for (const Ticket each : receives) EXPECT_EQ(message_of(ranks[1]->wait(each)), "");
    for (const Ticket each : sends) EXPECT_EQ(message_of(ranks[0]->wait(each)), "");
    EXPECT_EQ(received, sent);
  }
}
#endif

// Holds bulk after each frame; the test lets it go.
struct FrameByFrame : TransferListener {
  void hear(const TransferEvent& event, BulkControl& control) override {
    if (event.kind != TransferEvent::Kind::kProgress) return;
    control.hold_bulk(event.peer, Hold::kHolds);
    num_frames.fetch_add(1);
    num_frames.notify_one();
  }
  std::atomic<int32_t> num_frames = 0;  // publishes nothing but itself
};

TEST(DirectTransport, APeerThatIsSlowIsWaitedForAsLongAsBytesMove) {
  constexpr std::chrono::milliseconds kTimeout(200);
  constexpr int32_t kNumFrames = 12;
  FrameByFrame listener;
  std::vector<std::byte> sent(kNumFrames * kMaxFrameData, std::byte{1});
  std::vector<std::byte> received(sent.size());
  const auto ranks = make_direct_ranks(2, [&](DirectOptions& options) {
    options.timeout = options.rank == 1 ? kTimeout : std::chrono::seconds(20);
    if (options.rank == 0) options.listener = &listener;
  });
  ranks[0]->set_urgency(Urgency::kBulk);
  const Ticket send = ranks[0]->post_send(1, 0, sent).value();
  const Ticket receive = ranks[1]->post_receive(0, 0, received).value();
  const auto begin = std::chrono::steady_clock::now();
  const std::jthread slow([&] {
    for (int32_t done = 0; done < kNumFrames; ++done) {
      listener.num_frames.wait(done);
      // A frame in a quarter of what a wait may take without any.
      std::this_thread::sleep_until(begin + (done + 1) * kTimeout / 4);
      ranks[0]->hold_bulk(1, Hold::kLetsGo);
    }
  });
  const Status outcome = ranks[1]->wait(receive);
  listener.num_frames = kNumFrames;  // of a wait that has failed
  listener.num_frames.notify_one();
  ASSERT_EQ(message_of(outcome), "");
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 2 * kTimeout);
  EXPECT_EQ(message_of(ranks[0]->wait(send)), "");
  EXPECT_EQ(received, sent);
}

TEST(DirectTransport, RefusesWhatCannotBePosted) {
  const Ranks ranks = make_direct_ranks(2);
  std::vector<int32_t> numbers(1);
  const CommunicatorId world = ranks[0]->join("world", {0, 1}).value();
  EXPECT_EQ(message_of(ranks[0]->post_all_reduce(world, DType::kInt32, bytes_of(numbers))),
            "an all-reduce of i32: it must be f32 or f64");
  EXPECT_EQ(message_of(ranks[0]->post_all_reduce(world, DType::kFloat64, bytes_of(numbers))),
            "an all-reduce of 4 bytes, which is no whole number of f64");
  EXPECT_EQ(message_of(ranks[0]->post_send(2, 0, bytes_of(numbers))),
            "rank 0 has no transfer with peer 2 and tag 0: peers are 0 to 1 "
            "but itself, tags are "
            "not negative");
  EXPECT_EQ(message_of(ranks[0]->join("world", {0, 1})), "rank 0 joins communicator world twice");
  EXPECT_EQ(message_of(ranks[0]->join("b", {1})),
            "communicator b of rank 0: members 1 must be ascending, hold the "
            "rank and lie in 0 to "
            "1");
}

// A run of two ranks, of which the test is the second until it lets it in.
class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    hub_ = ControlHub::start({.watch = {.num_ranks = 2}, .token = "secret"}, [](const HubEvent&) {
           }).value();
    for (int32_t rank = 0; rank < 2; ++rank) {
      clients_[static_cast<size_t>(rank)] =
          ControlClient::connect({.address = hub_->address(), .token = "secret", .rank = rank})
              .value();
    }
  }
  Result<std::unique_ptr<DirectTransport>> make(int32_t rank, std::chrono::milliseconds timeout) {
    return make_direct_transport({.rank = rank, .num_ranks = 2, .connect_timeout = timeout},
                                 *clients_[static_cast<size_t>(rank)]);
  }
  // Its address, and in the next line the name of its local socket.
  std::string place_of_rank_0() {
    const StoreBytes text = clients_[1]->get("direct/0", std::chrono::seconds(10)).value();
    return {text.begin(), text.end()};
  }
  Result<FileDescriptor> connect_to_rank_0() {
    const std::string place = place_of_rank_0();
    TRIREME_TRY(const SocketAddress address,
                parse_socket_address(std::string_view(place).substr(0, place.find('\n'))));
    return connect_until(address, std::chrono::steady_clock::now() + std::chrono::seconds(10));
  }
  FileDescriptor connect_locally_to_rank_0() {
    const std::string place = place_of_rank_0();
    return connect_locally(place.substr(place.find('\n') + 1));
  }
  void expect_that_a_transfer_works(std::array<std::unique_ptr<DirectTransport>, 2>& ranks) {
    std::vector<int32_t> sent = {1, 2};
    std::vector<int32_t> received(2);
    const Ticket send = ranks[0]->post_send(1, 0, bytes_of(sent)).value();
    const Ticket receive = ranks[1]->post_receive(0, 0, bytes_of(received)).value();
    EXPECT_EQ(message_of(ranks[0]->wait(send)), "");
    EXPECT_EQ(message_of(ranks[1]->wait(receive)), "");
    EXPECT_EQ(received, sent);
  }

  std::unique_ptr<ControlHub> hub_;
  std::array<std::unique_ptr<ControlClient>, 2> clients_;
};

TEST_F(Strangers, AtThePortAndAtTheLocalSocketChangeNothing) {
  std::array<std::unique_ptr<DirectTransport>, 2> ranks;
  const std::vector<Status> outcomes = run_ranks(2, [&](int32_t rank) -> Status {
    std::vector<FileDescriptor> strangers;
    if (rank == 1) {
      const HelloBytes hello = encode_hello({.token = std::string(kTokenSize, '0'),
                                             .from = 1,
                                             .to = 0,
                                             .num_ranks = 2,
                                             .urgency = Urgency::kUrgent});
      std::vector<std::byte> garbage(1 << 16, std::byte{0x47});
      for (const std::span<const std::byte> words :
           {std::span<const std::byte>(garbage), std::span<const std::byte>(hello),
            std::span<const std::byte>(hello).first(20), std::span<const std::byte>()}) {
        for (int32_t i = 0; i < 40; ++i) {
          TRIREME_TRY(FileDescriptor stranger, connect_to_rank_0());
          static_cast<void>(::send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL));
          strangers.push_back(std::move(stranger));
          FileDescriptor local = connect_locally_to_rank_0();
          const std::array<int, 2> passed = {0, 0};
          const size_t num_passed = words.empty() ? 0 : i % 3;
          static_cast<void>(send_passing(local.get(), words, std::span(passed).first(num_passed)));
          strangers.push_back(std::move(local));
        }
      }
    }
    TRIREME_TRY(ranks[static_cast<size_t>(rank)], make(rank, std::chrono::seconds(20)));
    return Status();
  });
  for (const Status& outcome : outcomes) EXPECT_EQ(message_of(outcome), "");
  expect_that_a_transfer_works(ranks);
}

// The test is rank 0, which closes whoever comes to its local socket.
TEST_F(Strangers, ARankThatDeclinesSharedMemoryIsReachedByTcp) {
  const std::string token(kTokenSize, 'a');
  const FileDescriptor local = listen_locally("trireme-test-" + make_control_token()).value();
  const FileDescriptor listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
  sockaddr_un name{};
  socklen_t size = sizeof name;
  ASSERT_EQ(::getsockname(local.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string place =
      to_text({.host = "127.0.0.1", .port = bound_port(listener).value()}) + "\n" +
      std::string(&name.sun_path[1], size - offsetof(sockaddr_un, sun_path) - 1);
  EXPECT_TRUE(clients_[0]->set("direct/token", {token.begin(), token.end()}).ok());
  EXPECT_TRUE(clients_[0]->set("direct/0", {place.begin(), place.end()}).ok());
  const auto next = [](const FileDescriptor& from) {
    pollfd watched{.fd = from.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&watched, 1, 10000), 1);
    return accept_one(from);
  };
  const std::vector<Status> outcomes = run_ranks(2, [&](int32_t rank) -> Status {
    if (rank == 1) {
      TRIREME_TRY(const auto transport, make(1, std::chrono::seconds(20)));
      return Status();
    }
    for (int32_t i = 0; i < 2; ++i) EXPECT_TRUE(next(local).is_open());
    for (const Urgency urgency : {Urgency::kUrgent, Urgency::kBulk}) {
      const FileDescriptor socket = next(listener);
      const HelloBytes answer =
          encode_hello({.token = token, .from = 0, .to = 1, .num_ranks = 2, .urgency = urgency});
      EXPECT_EQ(::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 64);
    }
    return Status();
  });
  for (const Status& outcome : outcomes) EXPECT_EQ(message_of(outcome), "");
}

TEST_F(Strangers, ARankThatDoesNotComeIsNamed) {
  const StoreBytes place = {'1', '2', '7', '.', '0', '.', '0', '.', '1', ':', '1'};
  EXPECT_TRUE(clients_[1]->set("direct/1", place).ok());
  EXPECT_EQ(message_of(make(0, std::chrono::milliseconds(50))),
            "rank 1 at 127.0.0.1 did not connect in 0.05 s");
  EXPECT_THAT(message_of(make(1, std::chrono::milliseconds(50))),
              testing::StartsWith("rank 0 at 127.0.0.1: cannot connect to 127.0.0.1:"));
}

}  // namespace
}  // namespace trireme
