// The fixture of control_hub_test.cc and control_client_test.cc: a hub and its clients over
// loopback sockets, in one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"
#include "trireme/exec/frame_channel.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {
inline constexpr std::chrono::seconds kDeadline(20);

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

inline std::string text_of(const HubEvent& event) {
  if (const auto* line = std::get_if<PublishedLine>(&event)) {
    return fmt::format("{}: {}", line->rank, line->text);
  }
  if (const auto* failure = std::get_if<RunFailure>(&event)) {
    return fmt::format("{}", fmt::join(describe_failure(*failure, describe_bare_rank), "; "));
  }
  return "all finished";
}

class ControlFixture : public testing::Test {
 protected:
  void start_hub(int32_t num_ranks, std::chrono::milliseconds silence = std::chrono::seconds(30)) {
    auto hub = ControlHub::start(
        {.watch = {.num_ranks = num_ranks,
                   .silence_timeout = silence,
                   .where_timeout = std::chrono::milliseconds(300)},
         .bind_host = "127.0.0.1",
         .token = "secret",
         .describe_rank = describe_bare_rank,
         .on_notice = [this](const std::string& notice) { notices_.add(notice); }},
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
    auto socket = connect_until({.host = "127.0.0.1", .port = hub_->port()},
                                std::chrono::steady_clock::now() + kDeadline);
    EXPECT_TRUE(socket.ok());
    return FrameChannel(std::move(socket).value(), kMaxFrameBytes);
  }
  FrameChannel connect_raw_rank(int32_t rank) {
    FrameChannel channel = connect_raw();
    channel.queue({.kind = MessageKind::kHello,
                   .request = 0,
                   .number = rank,
                   .texts = {std::string(kControlMagic), "secret", ""}});
    EXPECT_EQ(channel.send_some(), ChannelState::kOpen);
    const auto answer = next_message(channel);
    EXPECT_TRUE(answer.has_value() && answer->kind == MessageKind::kWelcome);
    return channel;
  }
  // Nothing when the connection ends or the deadline passes first.
  static std::optional<ControlMessage> next_message(FrameChannel& channel) {
    const std::chrono::steady_clock::time_point deadline =
        std::chrono::steady_clock::now() + kDeadline;
    bool is_over = false;
    while (true) {
      const auto message = channel.next();
      if (!message.ok() || message.value().has_value()) {
        return message.ok() ? message.value() : std::nullopt;
      }
      pollfd watched{.fd = channel.fd(), .events = POLLIN, .revents = 0};
      if (is_over || ::poll(&watched, 1,
                            milliseconds_until(deadline, std::chrono::steady_clock::now())) <= 0) {
        EXPECT_TRUE(is_over) << "nothing came";
        return std::nullopt;
      }
      is_over = channel.receive_some() == ChannelState::kEnded;
    }
  }

  Journal events_;
  Journal losses_;
  Journal notices_;
  std::unique_ptr<ControlHub> hub_;
};

}  // namespace trireme
