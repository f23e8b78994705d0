#include "trireme/exec/control_hub.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include <poll.h>

#include <fmt/format.h>

#include "trireme/exec/control_protocol.h"
#include "trireme/exec/control_store.h"
#include "trireme/exec/frame_channel.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// What strangers on the port can hold: connections and time.
constexpr size_t kMaxStrangers = 64;
constexpr std::chrono::seconds kHelloTimeout(5);
// The loop turns once a second at least. Later than this it did not run (a stopped or starved
// process), so that it heard nobody says nothing about them.
constexpr std::chrono::seconds kTurn(1);
constexpr std::chrono::seconds kStall(3);
constexpr std::chrono::milliseconds kAcceptPause(100);
// Scanners of ports should not fill a log.
constexpr int32_t kMaxStrangerNotices = 3;
constexpr size_t kMaxNamedRanks = 8;

// "ranks 2, 3 and 5 more"
std::string list_of_ranks(const std::vector<int32_t>& ranks) {
  const size_t num_named = ranks.size() <= kMaxNamedRanks + 1 ? ranks.size() : kMaxNamedRanks;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < num_named; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (num_named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - num_named);
  return text;
}

}  // namespace

// The state and the thread of a hub. Connections are numbered in the order in which they came.
class ControlHub::Loop {
 public:
  Loop(ControlHub& hub, HubOptions options, FileDescriptor listener,
       std::function<void(HubEvent)> on_event)
      : hub_(hub),
        options_(std::move(options)),
        listener_(std::move(listener)),
        on_event_(std::move(on_event)),
        watch_(options_.watch, Clock::now()) {}

  void run(const std::stop_token& stop);

 private:
  struct Connection {
    FrameChannel channel;
    TimePoint hello_deadline;
    int32_t rank = -1;  // a stranger until it has shown the token
    bool is_closing = false;
  };

  [[nodiscard]] TimePoint next_deadline() const;
  void poll_once();
  void accept_all();
  void serve(int64_t id);
  void handle(int64_t id, Connection& connection, const ControlMessage& message);
  void greet(Connection& connection, const ControlMessage& hello);
  void end(int64_t id);
  void hear_exits();
  void tell_decisions();
  void drop_late_strangers();
  void tell_of_stranger(const Connection& connection, std::string_view why);
  void tell_who_is_absent();

  ControlHub& hub_;
  HubOptions options_;
  FileDescriptor listener_;
  std::function<void(HubEvent)> on_event_;
  RunWatch watch_;
  ControlStore store_;
  std::map<int64_t, Connection> connections_;
  int64_t next_id_ = 0;
  TimePoint accept_again_;  // after file descriptors ran out
  int32_t num_stranger_notices_ = 0;
};

void ControlHub::Loop::run(const std::stop_token& stop) {
  TimePoint last_round = Clock::now();
  while (!stop.stop_requested()) {
    poll_once();
    const TimePoint now = Clock::now();
    if (now - last_round > kStall) watch_.excuse_silence(now);
    last_round = now;
    hear_exits();
    drop_late_strangers();
    watch_.tick(now);
    tell_who_is_absent();
    tell_decisions();
  }
}

void ControlHub::Loop::tell_who_is_absent() {
  const auto absent = watch_.take_absent(Clock::now());
  if (!absent.has_value() || !options_.on_notice) return;
  const auto num_ranks = static_cast<size_t>(options_.watch.num_ranks);
  options_.on_notice(
      fmt::format("{} of {} ranks have come to {}; it waits for {}, at most {:g} s",
                  num_ranks - absent->size(), num_ranks, hub_.address(), list_of_ranks(*absent),
                  std::chrono::duration<double>(options_.watch.connect_timeout).count()));
}

void ControlHub::Loop::tell_of_stranger(const Connection& connection, std::string_view why) {
  if (!options_.on_notice || ++num_stranger_notices_ > kMaxStrangerNotices) return;
  options_.on_notice(fmt::format("a connection from {} to {} was closed: {}",
                                 peer_host(connection.channel.fd()), hub_.address(), why));
}

TimePoint ControlHub::Loop::next_deadline() const {
  TimePoint next = watch_.next_deadline();
  for (const auto& [id, connection] : connections_) {
    if (connection.rank < 0) next = std::min(next, connection.hello_deadline);
  }
  return accept_again_ > Clock::now() ? std::min(next, accept_again_) : next;
}

void ControlHub::Loop::poll_once() {
  std::vector<pollfd> watched = {{.fd = hub_.wake_.fd(), .events = POLLIN, .revents = 0}};
  std::vector<int64_t> ids;
  const TimePoint now = Clock::now();
  // A negative descriptor is skipped by poll.
  watched.push_back(
      {.fd = now >= accept_again_ ? listener_.get() : -1, .events = POLLIN, .revents = 0});
  for (auto& [id, connection] : connections_) {
    const bool sends = connection.channel.wants_to_send();
    watched.push_back({.fd = connection.channel.fd(),
                       .events = static_cast<int16_t>(sends ? POLLIN | POLLOUT : POLLIN),
                       .revents = 0});
    ids.push_back(id);
  }
  const TimePoint deadline = std::min(next_deadline(), now + kTurn);
  if (::poll(watched.data(), watched.size(), milliseconds_until(deadline, now)) <= 0) return;
  if (watched[0].revents != 0) hub_.wake_.clear();
  if (watched[1].revents != 0) accept_all();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (watched[i + 2].revents != 0) serve(ids[i]);
  }
}

void ControlHub::Loop::accept_all() {
  while (true) {
    FileDescriptor socket = accept_one(listener_);
    if (!socket.is_open()) {
      const bool is_idle = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (!is_idle) accept_again_ = Clock::now() + kAcceptPause;
      return;
    }
    const auto is_stranger = [](const auto& entry) { return entry.second.rank < 0; };
    const auto num_strangers = std::count_if(connections_.begin(), connections_.end(), is_stranger);
    if (static_cast<size_t>(num_strangers) >= kMaxStrangers) {
      end(std::find_if(connections_.begin(), connections_.end(), is_stranger)->first);
    }
    connections_.emplace(next_id_++,
                         Connection{.channel = FrameChannel(std::move(socket), kMaxHelloBytes),
                                    .hello_deadline = Clock::now() + kHelloTimeout});
  }
}

void ControlHub::Loop::serve(int64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  bool is_over = connection.channel.receive_some() == ChannelState::kEnded;
  while (!connection.is_closing) {
    const Result<std::optional<ControlMessage>> next = connection.channel.next();
    if (!next.ok()) {
      is_over = true;
      if (connection.rank < 0) tell_of_stranger(connection, "what it sent is no frame of Trireme");
      break;
    }
    const std::optional<ControlMessage>& message = next.value();
    if (!message.has_value()) break;
    if (connection.rank < 0) {
      greet(connection, *message);
    } else {
      watch_.heard(connection.rank, Clock::now());
      handle(id, connection, *message);
    }
  }
  if (connection.channel.send_some() == ChannelState::kEnded) is_over = true;
  if (is_over || (connection.is_closing && !connection.channel.wants_to_send())) end(id);
}

void ControlHub::Loop::greet(Connection& connection, const ControlMessage& hello) {
  connection.is_closing = true;
  if (hello.kind != MessageKind::kHello || hello.texts[0] != kControlMagic) {
    return tell_of_stranger(connection, "it is of another version of Trireme");
  }
  if (!tokens_are_equal(hello.texts[1], options_.token)) {
    return tell_of_stranger(connection, fmt::format("it is rank {} of another run", hello.number));
  }
  const Status admitted = watch_.admit(hello.number, Clock::now());
  if (!admitted.ok()) {
    connection.channel.queue(make_message(MessageKind::kRefused, 0, {admitted.error().message}));
    return;
  }
  connection.is_closing = false;
  connection.rank = static_cast<int32_t>(hello.number);
  watch_.is_on(connection.rank, hello.texts[2]);
  connection.channel.set_max_frame_bytes(kMaxFrameBytes);
  connection.channel.queue(make_message(MessageKind::kWelcome));
}

void ControlHub::Loop::handle(int64_t id, Connection& connection, const ControlMessage& message) {
  const int32_t rank = connection.rank;
  ControlMessage done = make_message(MessageKind::kReply);
  done.request = message.request;
  if (ControlStore::serves(message.kind)) {
    for (const StoreAnswer& answer : store_.serve(id, message)) {
      const auto asker = connections_.find(answer.asker);
      if (asker == connections_.end()) continue;
      asker->second.channel.queue(answer.reply);
    }
    return;
  }
  switch (message.kind) {
    case MessageKind::kHeartbeat:
      connection.channel.queue(message);
      break;
    case MessageKind::kPublish:
      on_event_(PublishedLine{.rank = rank, .text = message.texts[0]});
      break;
    case MessageKind::kFailed:
      // It may be gone before it is asked.
      watch_.answered(rank, message.texts[1]);
      watch_.failed(rank, message.texts[0],
                    message.number == static_cast<int64_t>(FailureOrigin::kOwn)
                        ? FailureOrigin::kOwn
                        : FailureOrigin::kUnknown,
                    Clock::now());
      connection.channel.queue(done);
      break;
    case MessageKind::kFinished:
      watch_.finished(rank);
      connection.channel.queue(done);
      break;
    case MessageKind::kWhere:
      watch_.answered(rank, message.texts[0]);
      break;
    default:
      connection.is_closing = true;  // a kind that only the hub sends
  }
}

void ControlHub::Loop::end(int64_t id) {
  const auto found = connections_.find(id);
  const int32_t rank = found->second.rank;
  connections_.erase(found);
  store_.forget(id);
  if (rank >= 0) watch_.connection_ended(rank, Clock::now());
}

void ControlHub::Loop::hear_exits() {
  for (const ExitReport& report : hub_.take_exit_reports()) {
    // Its process is gone, so all that it sent is there to be read, then comes the end. Bounded,
    // because a process that it forked may hold the connection open.
    for (int round = 0; round < 64; ++round) {
      const auto found =
          std::find_if(connections_.begin(), connections_.end(),
                       [&](const auto& entry) { return entry.second.rank == report.rank; });
      if (found == connections_.end()) break;
      serve(found->first);
    }
    watch_.exited(report.rank, report.wait_status, Clock::now());
  }
}

void ControlHub::Loop::tell_decisions() {
  if (const auto announcement = watch_.take_announcement()) {
    const ControlMessage lost =
        make_message(MessageKind::kLost, announcement->cause.rank,
                     {describe_cause(announcement->cause, options_.describe_rank)});
    for (auto& [id, connection] : connections_) {
      const auto& to = announcement->to;
      if (std::find(to.begin(), to.end(), connection.rank) == to.end()) continue;
      connection.channel.queue(lost);
      // On its way before a failure that is decided already ends this process.
      [[maybe_unused]] const ChannelState sent = connection.channel.send_some();
    }
  }
  if (watch_.take_all_finished()) on_event_(AllFinished{});
  if (auto failure = watch_.take_failure()) on_event_(*std::move(failure));
}

void ControlHub::Loop::drop_late_strangers() {
  const TimePoint now = Clock::now();
  std::vector<int64_t> late;
  for (const auto& [id, connection] : connections_) {
    if (connection.rank < 0 && now >= connection.hello_deadline) late.push_back(id);
  }
  for (const int64_t id : late) {
    tell_of_stranger(connections_.find(id)->second, "it did not say who it is");
    end(id);
  }
}

Result<std::unique_ptr<ControlHub>> ControlHub::start(HubOptions options,
                                                      std::function<void(HubEvent)> on_event) {
  TRIREME_CHECK(!options.token.empty(), "a hub needs a token");
  TRIREME_TRY(FileDescriptor listener,
              listen_on({.host = options.bind_host, .port = options.port}));
  TRIREME_TRY(const uint16_t port, bound_port(listener));
  std::unique_ptr<ControlHub> hub(new ControlHub(options.bind_host, port));
  auto loop =
      std::make_unique<Loop>(*hub, std::move(options), std::move(listener), std::move(on_event));
  hub->thread_ =
      std::jthread([owned = std::move(loop)](const std::stop_token& stop) { owned->run(stop); });
  return hub;
}

ControlHub::~ControlHub() {
  thread_.request_stop();
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

std::string ControlHub::address() const { return to_text({.host = host_, .port = port_}); }

void ControlHub::report_exit(int32_t rank, int wait_status) {
  {
    const std::lock_guard lock(mutex_);
    exit_reports_.push_back({.rank = rank, .wait_status = wait_status});
  }
  wake_.notify();
}

std::vector<ControlHub::ExitReport> ControlHub::take_exit_reports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(exit_reports_, {});
}

}  // namespace trireme
