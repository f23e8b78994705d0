#include "trireme/exec/control_client.h"

#include <algorithm>
#include <array>
#include <utility>

#include <poll.h>

#include <fmt/format.h>

#include "trireme/exec/control_handshake.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::string to_text_bytes(const StoreBytes& bytes) { return {bytes.begin(), bytes.end()}; }

StoreBytes to_store_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string quoted_list(const std::vector<std::string>& keys) {
  return fmt::format("key{} {} of the store", keys.size() == 1 ? "" : "s", fmt::join(keys, ", "));
}

size_t payload_bytes(const ControlMessage& message) {
  size_t total = 0;
  for (const std::string& text : message.texts) total += text.size() + 64;
  return total;
}

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::connect(ClientOptions options) {
  TRIREME_TRY(FrameChannel channel, join_run({.address = options.address,
                                              .hub_name = options.hub_name,
                                              .token = options.token,
                                              .rank = options.rank,
                                              .host = options.host,
                                              .timeout = options.connect_timeout,
                                              .on_waiting = options.on_waiting,
                                              .name_may_come = options.name_may_come}));
  std::unique_ptr<ControlClient> client(new ControlClient(std::move(options), std::move(channel)));
  ControlClient* raw = client.get();
  client->thread_ = std::jthread([raw](const std::stop_token& stop) { raw->run(stop); });
  return client;
}

ControlClient::ControlClient(ClientOptions options, FrameChannel channel)
    : options_(std::move(options)),
      local_host_(own_host(channel.fd())),
      channel_(std::move(channel)),
      last_heard_(Clock::now()) {}

ControlClient::~ControlClient() {
  thread_.request_stop();
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

// ---- any thread

Result<ControlMessage> ControlClient::request(ControlMessage message,
                                              std::chrono::milliseconds timeout,
                                              const std::string& what, AfterLoss after_loss) {
  if (payload_bytes(message) > kMaxFrameBytes - 1024) {
    return Error{fmt::format("{}: {} bytes are too many for the control channel", what,
                             payload_bytes(message))};
  }
  // The end of time does not survive being added to now.
  const auto bounded = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
  const Clock::time_point deadline = Clock::now() + bounded;
  std::unique_lock lock(mutex_);
  const auto is_hopeless = [&] {
    return !is_connected_ || (lost_.has_value() && after_loss == AfterLoss::kRefuse);
  };
  if (is_hopeless()) return Error{fmt::format("{}: {}", what, lost_.value_or("not connected"))};
  const uint32_t id = next_request_++;
  message.request = id;
  pending_[id] = {.ends_the_run = message.kind == MessageKind::kFinished, .reply = {}};
  outgoing_.push_back(std::move(message));
  wake_.notify();
  answered_.wait_until(lock, deadline,
                       [&] { return pending_[id].reply.has_value() || is_hopeless(); });
  const std::optional<ControlMessage> reply = std::move(pending_[id].reply);
  pending_.erase(id);
  if (reply.has_value()) {
    if (reply->kind == MessageKind::kReplyError) return Error{reply->texts[0]};
    return *reply;
  }
  if (is_hopeless()) return Error{fmt::format("{}: {}", what, lost_.value_or("not connected"))};
  ControlMessage cancel{.kind = MessageKind::kCancel, .request = id, .number = 0, .texts = {}};
  outgoing_.push_back(std::move(cancel));
  wake_.notify();
  return Error{fmt::format("{}: no answer for {:g} s", what,
                           std::chrono::duration<double>(bounded).count())};
}

Status ControlClient::set(const std::string& key, const StoreBytes& value) {
  TRIREME_TRY(request(make_message(MessageKind::kSet, 0, {key, to_text_bytes(value)}),
                      options_.request_timeout, "setting " + quoted_list({key})));
  return Status();
}

Result<StoreBytes> ControlClient::get(const std::string& key, std::chrono::milliseconds timeout) {
  TRIREME_TRY(const ControlMessage reply, request(make_message(MessageKind::kGet, 0, {key}),
                                                  timeout, "waiting for " + quoted_list({key})));
  return reply.texts.empty() ? StoreBytes() : to_store_bytes(reply.texts[0]);
}

Result<int64_t> ControlClient::add(const std::string& key, int64_t delta) {
  TRIREME_TRY(const ControlMessage reply,
              request(make_message(MessageKind::kAdd, delta, {key}), options_.request_timeout,
                      "adding to " + quoted_list({key})));
  return reply.number;
}

Result<bool> ControlClient::check(const std::vector<std::string>& keys) {
  TRIREME_TRY(const ControlMessage reply,
              request(make_message(MessageKind::kCheck, 0, keys), options_.request_timeout,
                      "checking " + quoted_list(keys)));
  return reply.number != 0;
}

Status ControlClient::wait(const std::vector<std::string>& keys,
                           std::chrono::milliseconds timeout) {
  TRIREME_TRY(request(make_message(MessageKind::kWait, 0, keys), timeout,
                      "waiting for " + quoted_list(keys)));
  return Status();
}

Result<bool> ControlClient::delete_key(const std::string& key) {
  TRIREME_TRY(const ControlMessage reply,
              request(make_message(MessageKind::kDelete, 0, {key}), options_.request_timeout,
                      "deleting " + quoted_list({key})));
  return reply.number != 0;
}

Result<StoreBytes> ControlClient::compare_set(const std::string& key, const StoreBytes& expected,
                                              const StoreBytes& desired) {
  TRIREME_TRY(const ControlMessage reply,
              request(make_message(MessageKind::kCompareSet, 0,
                                   {key, to_text_bytes(expected), to_text_bytes(desired)}),
                      options_.request_timeout, "setting " + quoted_list({key})));
  return reply.texts.empty() ? StoreBytes() : to_store_bytes(reply.texts[0]);
}

Result<int64_t> ControlClient::num_keys() {
  TRIREME_TRY(const ControlMessage reply,
              request(make_message(MessageKind::kNumKeys), options_.request_timeout,
                      "counting the keys of the store"));
  return reply.number;
}

void ControlClient::publish(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_connected_) return;
    outgoing_.push_back(make_message(MessageKind::kPublish, 0, {std::move(text)}));
  }
  wake_.notify();
}

Status ControlClient::fail(const std::string& message, FailureOrigin origin) {
  TRIREME_TRY(request(
      make_message(MessageKind::kFailed, static_cast<int64_t>(origin), {message, current_work()}),
      std::chrono::seconds(2), "reporting a failure", AfterLoss::kSend));
  return Status();
}

Status ControlClient::finish() {
  TRIREME_TRY(
      request(make_message(MessageKind::kFinished), options_.request_timeout, "reporting the end"));
  return Status();
}

std::string ControlClient::current_work() const {
  return options_.where ? options_.where() : "work that it does not name";
}

std::optional<std::string> ControlClient::lost_reason() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// ---- the client's thread

void ControlClient::run(const std::stop_token& stop) {
  Clock::time_point next_heartbeat = Clock::now();
  Clock::time_point last_round = next_heartbeat;
  while (!stop.stop_requested()) {
    const Clock::time_point now = Clock::now();
    // After a pause of this whole process (SIGSTOP) the hub's word may be there, unread.
    if (now - last_round > options_.heartbeat_period + std::chrono::seconds(2)) last_heard_ = now;
    last_round = now;
    if (now >= next_heartbeat) {
      channel_.queue(make_message(MessageKind::kHeartbeat));
      next_heartbeat = now + options_.heartbeat_period;
    }
    if (exchange_frames() == ChannelState::kEnded) {
      disconnect("the connection to " + options_.hub_name + " ended");
      return;
    }
    if (now - last_heard_ > options_.silence_timeout) {
      const std::string reason =
          fmt::format("{} was silent for {:g} s", options_.hub_name,
                      std::chrono::duration<double>(options_.silence_timeout).count());
      // A hub that was only stopped reads it when it goes on, and knows why this rank has gone.
      channel_.queue(make_message(MessageKind::kFailed, static_cast<int64_t>(FailureOrigin::kOwn),
                                  {reason, current_work()}));
      [[maybe_unused]] const ChannelState sent = channel_.send_some();
      disconnect(reason);
      return;
    }
    std::array<pollfd, 2> watched = {{{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                                      {.fd = channel_.fd(), .events = POLLIN, .revents = 0}}};
    if (channel_.wants_to_send()) watched[1].events |= POLLOUT;
    ::poll(watched.data(), watched.size(), milliseconds_until(next_heartbeat, Clock::now()));
    if (watched[0].revents != 0) wake_.clear();
  }
  // What was published just before the end still goes out.
  [[maybe_unused]] const ChannelState last = exchange_frames();
}

ChannelState ControlClient::exchange_frames() {
  const auto send_all = [this] {
    {
      const std::lock_guard lock(mutex_);
      for (const ControlMessage& message : outgoing_) channel_.queue(message);
      outgoing_.clear();
    }
    return channel_.send_some();
  };
  const ChannelState sent = send_all();
  const ChannelState taken = take_frames();
  // The answers to what has just been heard go out before the next sleep.
  const ChannelState answered = channel_.send_some();
  const bool is_over = sent == ChannelState::kEnded || taken == ChannelState::kEnded ||
                       answered == ChannelState::kEnded;
  return is_over ? ChannelState::kEnded : ChannelState::kOpen;
}

ChannelState ControlClient::take_frames() {
  const ChannelState state = channel_.receive_some();
  while (true) {
    const Result<std::optional<ControlMessage>> next = channel_.next();
    if (!next.ok()) return ChannelState::kEnded;
    const std::optional<ControlMessage>& message = next.value();
    if (!message.has_value()) return state;
    last_heard_ = Clock::now();
    handle(*message);
  }
}

void ControlClient::handle(const ControlMessage& message) {
  switch (message.kind) {
    case MessageKind::kReply:
    case MessageKind::kReplyError: {
      const std::lock_guard lock(mutex_);
      const auto found = pending_.find(message.request);
      if (found == pending_.end()) return;  // it has been given up
      found->second.reply = message;
      if (found->second.ends_the_run) has_finished_ = true;
      answered_.notify_all();
      return;
    }
    case MessageKind::kLost: {
      channel_.queue(make_message(MessageKind::kWhere, 0, {current_work()}));
      // On its way before on_lost, which may end this process.
      [[maybe_unused]] const ChannelState sent = channel_.send_some();
      lose(message.texts[0], options_.on_lost);
      return;
    }
    default:
      return;  // a heartbeat's echo
  }
}

void ControlClient::lose(const std::string& reason,
                         const std::function<void(const std::string&)>& tell) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_.has_value() || has_finished_) return;
    lost_ = reason;
    answered_.notify_all();
  }
  if (tell) tell(reason);
}

void ControlClient::disconnect(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    is_connected_ = false;
    answered_.notify_all();
  }
  lose(reason, options_.on_hub_lost ? options_.on_hub_lost : options_.on_lost);
}

}  // namespace trireme
