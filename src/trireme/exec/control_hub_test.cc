// A hub and its clients over loopback sockets, in one process.
#include "trireme/exec/control_hub.h"

#include <chrono>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/frame_channel.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

constexpr seconds kDeadline(20);

// Texts that other threads add and the test waits for.
class Journal {
 public:
  void add(std::string text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(std::move(text));
    changed_.notify_all();
  }
  // The first `count`, or as many as came before the deadline.
  std::vector<std::string> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kDeadline, [&] { return texts_.size() >= count; });
    return texts_;
  }
  [[nodiscard]] std::vector<std::string> texts() { return wait_for(0); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;  // guarded by mutex_
};

std::string text_of(const HubEvent& event) {
  if (const auto* line = std::get_if<PublishedLine>(&event)) {
    return fmt::format("{}: {}", line->rank, line->text);
  }
  if (const auto* failure = std::get_if<RunFailure>(&event)) {
    return fmt::format("{}", fmt::join(describe_failure(*failure, describe_bare_rank), "; "));
  }
  return "all finished";
}

class ControlHubTest : public testing::Test {
 protected:
  void start_hub(int32_t num_ranks, milliseconds silence = seconds(30)) {
    auto hub = ControlHub::start({.watch = {.num_ranks = num_ranks,
                                            .silence_timeout = silence,
                                            .where_timeout = milliseconds(300)},
                                  .bind_host = "127.0.0.1",
                                  .token = "secret",
                                  .describe_rank = describe_bare_rank},
                                 [this](const HubEvent& event) { events_.add(text_of(event)); });
    ASSERT_TRUE(hub.ok()) << hub.error().message;
    hub_ = std::move(hub).value();
  }

  ClientOptions options(int32_t rank) {
    ClientOptions result;
    result.address = hub_->address();
    result.token = "secret";
    result.rank = rank;
    result.where = [rank] { return fmt::format("F{}", rank); };
    result.on_lost = [this, rank](const std::string& reason) {
      losses_.add(fmt::format("{}: {}", rank, reason));
    };
    return result;
  }

  std::unique_ptr<ControlClient> connect(ClientOptions options) {
    auto client = ControlClient::connect(std::move(options));
    EXPECT_TRUE(client.ok()) << client.error().message;
    return client.ok() ? std::move(client).value() : nullptr;
  }
  std::unique_ptr<ControlClient> connect(int32_t rank) { return connect(options(rank)); }

  // A connection without a client: what it sends is up to the test.
  FrameChannel connect_raw() {
    auto socket =
        connect_until({.host = "127.0.0.1", .port = hub_->port()}, Clock::now() + kDeadline);
    EXPECT_TRUE(socket.ok());
    return FrameChannel(std::move(socket).value(), kMaxFrameBytes);
  }
  FrameChannel connect_raw_rank(int32_t rank) {
    FrameChannel channel = connect_raw();
    channel.queue({.kind = MessageKind::kHello,
                   .request = 0,
                   .number = rank,
                   .texts = {std::string(kControlMagic), "secret"}});
    EXPECT_EQ(channel.send_some(), ChannelState::kOpen);
    const auto answer = next_message(channel);
    EXPECT_TRUE(answer.has_value() && answer->kind == MessageKind::kWelcome);
    return channel;
  }
  // Nothing when the connection ends or the deadline passes first.
  static std::optional<ControlMessage> next_message(FrameChannel& channel) {
    const Clock::time_point deadline = Clock::now() + kDeadline;
    bool is_over = false;
    while (true) {
      const auto message = channel.next();
      if (!message.ok() || message.value().has_value()) {
        return message.ok() ? message.value() : std::nullopt;
      }
      pollfd watched{.fd = channel.fd(), .events = POLLIN, .revents = 0};
      if (is_over || ::poll(&watched, 1, milliseconds_until(deadline, Clock::now())) <= 0) {
        EXPECT_TRUE(is_over) << "nothing came";
        return std::nullopt;
      }
      is_over = channel.receive_some() == ChannelState::kEnded;
    }
  }

  Journal events_;
  Journal losses_;
  std::unique_ptr<ControlHub> hub_;
};

TEST_F(ControlHubTest, ClientsMeetThroughTheStore) {
  constexpr int32_t kNumRanks = 6;
  start_hub(kNumRanks);
  std::vector<int64_t> sums(kNumRanks);
  std::vector<std::string> greetings(kNumRanks);
  {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < kNumRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto client = connect(rank);
        const std::string name = std::to_string(rank);
        EXPECT_TRUE(client->set("name" + name, StoreBytes(name.begin(), name.end())).ok());
        const int32_t next = (rank + 1) % kNumRanks;
        const auto greeting = client->get("name" + std::to_string(next), kDeadline);
        ASSERT_TRUE(greeting.ok());
        greetings[rank].assign(greeting.value().begin(), greeting.value().end());
        for (int i = 0; i < 200; ++i) EXPECT_TRUE(client->add("sum", rank).ok());
        EXPECT_TRUE(client->set("done" + name, {}).ok());
        std::vector<std::string> keys;
        for (int32_t each = 0; each < kNumRanks; ++each) {
          keys.push_back("done" + std::to_string(each));
        }
        EXPECT_TRUE(client->wait(keys, kDeadline).ok());
        sums[rank] = client->add("sum", 0).value();
        EXPECT_TRUE(client->finish().ok());
      });
    }
  }
  EXPECT_THAT(sums, testing::Each(200 * (1 + 2 + 3 + 4 + 5)));
  EXPECT_THAT(greetings, ElementsAre("1", "2", "3", "4", "5", "0"));
  EXPECT_THAT(events_.wait_for(1), ElementsAre("all finished"));
  EXPECT_THAT(losses_.texts(), ElementsAre());
}

TEST_F(ControlHubTest, EveryStoreOperationGoesOverTheWire) {
  start_hub(1);
  const auto client = connect(0);
  const StoreBytes bytes = {0, 255, '\n', 0};
  EXPECT_TRUE(client->set("k", bytes).ok());
  EXPECT_EQ(client->get("k", kDeadline).value(), bytes);
  EXPECT_EQ(client->check({"k"}).value(), true);
  EXPECT_EQ(client->check({"k", "l"}).value(), false);
  EXPECT_EQ(client->num_keys().value(), 1);
  EXPECT_EQ(client->compare_set("k", bytes, {'x'}).value(), StoreBytes({'x'}));
  EXPECT_EQ(client->delete_key("k").value(), true);
  EXPECT_EQ(client->delete_key("k").value(), false);
  const StoreBytes large(size_t{8} << 20, 7);
  EXPECT_TRUE(client->set("large", large).ok());
  EXPECT_EQ(client->get("large", kDeadline).value(), large);
  EXPECT_EQ(client->set("huge", StoreBytes(kMaxFrameBytes)).error().message,
            "setting key huge of the store: 67108996 bytes are too many for the control channel");
  EXPECT_EQ(client->add("large", 1).error().message,
            "key large of the store holds 8388608 bytes that are no number to add to");
}

TEST_F(ControlHubTest, WaitingEndsAtItsTimeOutAndDoesNotDisturbLaterRequests) {
  start_hub(1);
  const auto client = connect(0);
  EXPECT_EQ(client->get("k", milliseconds(30)).error().message,
            "waiting for key k of the store: no answer for 0.03 s");
  EXPECT_EQ(client->wait({"k", "l"}, milliseconds(0)).error().message,
            "waiting for keys k, l of the store: no answer for 0 s");
  EXPECT_TRUE(client->set("k", {'v'}).ok());
  EXPECT_EQ(client->get("k", milliseconds::max()).value(), StoreBytes({'v'}));
}

TEST_F(ControlHubTest, LinesArePublishedInOrderAndBeforeTheEnd) {
  start_hub(1);
  auto client = connect(0);
  client->publish("one");
  client->publish("two");
  EXPECT_TRUE(client->finish().ok());
  EXPECT_THAT(events_.wait_for(3), ElementsAre("0: one", "0: two", "all finished"));
}

TEST_F(ControlHubTest, ARankThatVanishesIsLostForAllOthersAndWhereTheyWereIsCollected) {
  start_hub(3);
  const auto client0 = connect(0);
  const auto client1 = connect(1);
  {
    FrameChannel vanishing = connect_raw_rank(2);
    // Closing with a reset, as a host that goes down may.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(vanishing.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  EXPECT_THAT(events_.wait_for(1), ElementsAre("rank 2 died: its control connection ended; "
                                               "rank 0 was in F0; rank 1 was in F1"));
  EXPECT_THAT(losses_.wait_for(2),
              testing::UnorderedElementsAre("0: rank 2 died: its control connection ended",
                                            "1: rank 2 died: its control connection ended"));
  EXPECT_EQ(client0->lost_reason(), "rank 2 died: its control connection ended");
}

TEST_F(ControlHubTest, WhoeverWaitsForADeadRankIsToldAtOnce) {
  start_hub(2);
  const auto client = connect(0);
  auto dying = connect(1);
  std::jthread killer([&] { dying.reset(); });
  const std::string lost = "rank 1 died: its control connection ended";
  EXPECT_EQ(client->get("never", kDeadline).error().message,
            "waiting for key never of the store: " + lost);
  EXPECT_EQ(client->num_keys().error().message, "counting the keys of the store: " + lost);
  EXPECT_TRUE(client->fail("a transfer failed").ok());
}

TEST_F(ControlHubTest, AFailureIsToldToTheOthersWithItsMessage) {
  start_hub(2);
  const auto client = connect(0);
  const auto failing = connect(1);
  EXPECT_TRUE(failing->fail("the loss of step 3 is nan", FailureOrigin::kOwn).ok());
  EXPECT_THAT(events_.wait_for(1),
              ElementsAre("rank 1 failed: the loss of step 3 is nan; rank 0 was in F0"));
  EXPECT_THAT(losses_.wait_for(1), ElementsAre("0: rank 1 failed: the loss of step 3 is nan"));
}

TEST_F(ControlHubTest, ASilentRankIsLost) {
  start_hub(2, milliseconds(300));
  ClientOptions lively = options(0);
  lively.heartbeat_period = milliseconds(20);
  const auto client = connect(std::move(lively));
  FrameChannel silent = connect_raw_rank(1);
  EXPECT_THAT(events_.wait_for(1),
              ElementsAre("rank 1 was lost: silent for 0.3 s; rank 0 was in F0"));
}

TEST_F(ControlHubTest, TheEndOfTheHubIsALossUnlessTheRankHasFinished) {
  start_hub(2);
  ClientOptions named = options(0);
  named.hub_name = "rank 0";
  const auto client0 = connect(std::move(named));
  const auto client1 = connect(1);
  EXPECT_TRUE(client1->finish().ok());
  hub_.reset();
  EXPECT_THAT(losses_.wait_for(1), ElementsAre("0: the connection to rank 0 ended"));
  EXPECT_EQ(client0->num_keys().error().message,
            "counting the keys of the store: the connection to rank 0 ended");
  EXPECT_FALSE(client1->num_keys().ok());
  EXPECT_EQ(losses_.texts().size(), 1U);
}

TEST_F(ControlHubTest, AHubThatSaysNothingIsLost) {
  const auto listener = listen_on({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener.ok());
  ClientOptions patient;
  patient.address = fmt::format("127.0.0.1:{}", bound_port(listener.value()).value());
  patient.rank = 0;
  patient.heartbeat_period = milliseconds(20);
  patient.silence_timeout = milliseconds(100);
  patient.on_lost = [this](const std::string& reason) { losses_.add(reason); };
  // Welcomes its rank, then does not answer.
  std::optional<FrameChannel> mute;
  std::jthread welcome([&] {
    pollfd watched{.fd = listener.value().get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&watched, 1, 20000), 1);
    mute.emplace(accept_one(listener.value()), kMaxFrameBytes);
    mute->queue({.kind = MessageKind::kWelcome, .request = 0, .number = 0, .texts = {}});
    EXPECT_EQ(mute->send_some(), ChannelState::kOpen);
  });
  const auto client = ControlClient::connect(std::move(patient));
  ASSERT_TRUE(client.ok());
  EXPECT_THAT(losses_.wait_for(1), ElementsAre("the supervisor was silent for 0.1 s"));
}

TEST_F(ControlHubTest, ForeignBytesCloseTheirConnectionAndNothingElse) {
  start_hub(1);
  const auto client = connect(0);
  const std::string hello_of_another_run =
      encode_frame({.kind = MessageKind::kHello,
                    .request = 0,
                    .number = 0,
                    .texts = {std::string(kControlMagic), "wrong!"}});
  const std::string not_a_hello =
      encode_frame({.kind = MessageKind::kSet, .request = 1, .number = 0, .texts = {"k", "v"}});
  const std::string other_magic = encode_frame({.kind = MessageKind::kHello,
                                                .request = 0,
                                                .number = 0,
                                                .texts = {"trireme-control-0", "secret"}});
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), hello_of_another_run, not_a_hello, other_magic,
        std::string(300, '\xff'), std::string(kMaxHelloBytes, '\0')}) {
    FrameChannel stranger = connect_raw();
    ASSERT_EQ(::send(stranger.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(next_message(stranger), std::nullopt);
  }
  EXPECT_EQ(client->num_keys().value(), 0);
  EXPECT_THAT(events_.texts(), ElementsAre());
}

TEST_F(ControlHubTest, ManyStrangersThatSayNothingDoNotKeepARankOut) {
  start_hub(1);
  std::vector<FrameChannel> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connect_raw());
  const auto client = connect(0);
  // All but 64 of them have been closed, the oldest first.
  for (int i = 0; i < 36; ++i) EXPECT_EQ(next_message(strangers[i]), std::nullopt);
  EXPECT_TRUE(client->set("k", {}).ok());
}

TEST_F(ControlHubTest, ARankThatBreaksTheProtocolIsLost) {
  start_hub(2);
  const auto client = connect(0);
  FrameChannel broken = connect_raw_rank(1);
  broken.queue({.kind = MessageKind::kWelcome, .request = 0, .number = 0, .texts = {}});
  EXPECT_EQ(broken.send_some(), ChannelState::kOpen);
  EXPECT_THAT(losses_.wait_for(1), ElementsAre("0: rank 1 died: its control connection ended"));
}

TEST_F(ControlHubTest, WhoeverDoesNotBelongIsToldWhy) {
  start_hub(2);
  const auto client = connect(0);
  const auto message_of = [](ClientOptions wrong) {
    wrong.connect_timeout = milliseconds(200);
    const auto refused = ControlClient::connect(std::move(wrong));
    return refused.ok() ? std::string("connected") : refused.error().message;
  };
  const std::string address = hub_->address();
  EXPECT_EQ(message_of(options(0)),
            "the supervisor at " + address + " refused rank 0: rank 0 is or was connected already");
  EXPECT_EQ(message_of(options(7)),
            "the supervisor at " + address + " refused rank 7: the run has 2 ranks and no rank 7");
  ClientOptions wrong_token = options(1);
  wrong_token.token = "guess!";
  EXPECT_EQ(message_of(wrong_token),
            address +
                " closed the connection of rank 1: the token is that of another run, or the port "
                "belongs to another program");
  ClientOptions wrong_address = options(1);
  wrong_address.address = "nowhere";
  EXPECT_EQ(message_of(wrong_address), "nowhere is no address of the form host:port");
  hub_.reset();
  EXPECT_EQ(message_of([&] {
              ClientOptions late = wrong_token;
              late.address = address;
              return late;
            }()),
            "cannot connect to " + address + ": Connection refused");
}

TEST_F(ControlHubTest, TheLastWordOfAProcessIsHeardBeforeItsExitIsJudged) {
  start_hub(1);
  FrameChannel rank = connect_raw_rank(0);
  rank.queue({.kind = MessageKind::kFinished, .request = 1, .number = 0, .texts = {}});
  EXPECT_EQ(rank.send_some(), ChannelState::kOpen);
  hub_->report_exit(0, 0);
  EXPECT_THAT(events_.wait_for(1), ElementsAre("all finished"));
}

}  // namespace
}  // namespace trireme
