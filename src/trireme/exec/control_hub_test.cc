#include "trireme/exec/control_hub.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <sys/socket.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/control_fixture.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class ControlHubTest : public ControlFixture {};

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

TEST_F(ControlHubTest, AFailureIsToldToAllWithItsMessage) {
  start_hub(2);
  const auto client = connect(0);
  const auto failing = connect(1);
  EXPECT_TRUE(failing->fail("the loss of step 3 is nan", FailureOrigin::kOwn).ok());
  EXPECT_THAT(events_.wait_for(1),
              ElementsAre("rank 1 failed: the loss of step 3 is nan; rank 0 was in F0"));
  EXPECT_THAT(losses_.wait_for(2),
              UnorderedElementsAre("0: rank 1 failed: the loss of step 3 is nan",
                                   "1: rank 1 failed: the loss of step 3 is nan"));
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

TEST_F(ControlHubTest, ForeignBytesCloseTheirConnectionAndNothingElse) {
  start_hub(1);
  const auto client = connect(0);
  const std::string hello_of_another_run =
      encode_frame({.kind = MessageKind::kHello,
                    .request = 0,
                    .number = 0,
                    .texts = {std::string(kControlMagic), "wrong!", ""}});
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
  // The first three, lest a scanner of ports fills a log.
  const std::string begin = "a connection from 127.0.0.1 to " + hub_->address() + " was closed: ";
  EXPECT_THAT(notices_.texts(), ElementsAre(begin + "what it sent is no frame of Trireme",
                                            begin + "it is rank 0 of another run",
                                            begin + "it is of another version of Trireme"));
}

TEST_F(ControlHubTest, ManyStrangersThatSayNothingDoNotKeepARankOut) {
  start_hub(1);
  std::vector<FrameChannel> strangers;
  strangers.reserve(100);
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
