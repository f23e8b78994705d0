#include "trireme/exec/control_client.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/control_fixture.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

class ControlClientTest : public ControlFixture {};

TEST_F(ControlClientTest, ClientsMeetThroughTheStore) {
  constexpr int32_t kNumRanks = 6;
  start_hub(kNumRanks);
  std::vector<int64_t> sums(kNumRanks);
  std::vector<std::string> greetings(kNumRanks);
  {
    std::vector<std::jthread> threads;
    threads.reserve(kNumRanks);
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
        keys.reserve(kNumRanks);
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

TEST_F(ControlClientTest, EveryStoreOperationGoesOverTheWire) {
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

TEST_F(ControlClientTest, WaitingEndsAtItsTimeOutAndDoesNotDisturbLaterRequests) {
  start_hub(1);
  const auto client = connect(0);
  EXPECT_EQ(client->get("k", milliseconds(30)).error().message,
            "waiting for key k of the store: no answer for 0.03 s");
  EXPECT_EQ(client->wait({"k", "l"}, milliseconds(0)).error().message,
            "waiting for keys k, l of the store: no answer for 0 s");
  EXPECT_TRUE(client->set("k", {'v'}).ok());
  EXPECT_EQ(client->get("k", milliseconds::max()).value(), StoreBytes({'v'}));
}

TEST_F(ControlClientTest, LinesArePublishedInOrderAndBeforeTheEnd) {
  start_hub(1);
  auto client = connect(0);
  client->publish("one");
  client->publish("two");
  EXPECT_TRUE(client->finish().ok());
  EXPECT_THAT(events_.wait_for(3), ElementsAre("0: one", "0: two", "all finished"));
}

TEST_F(ControlClientTest, WhoeverWaitsForADeadRankIsToldAtOnce) {
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

TEST_F(ControlClientTest, TheEndOfTheHubIsALossUnlessTheRankHasFinished) {
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

TEST_F(ControlClientTest, AHubThatSaysNothingIsLost) {
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

TEST_F(ControlClientTest, WhoeverDoesNotBelongIsToldWhy) {
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
            "cannot connect to " + address + ": Connection refused, for 0.2 s");
}

}  // namespace
}  // namespace trireme
