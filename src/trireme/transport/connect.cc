#include "trireme/transport/connect.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/exec/stream_socket.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// Of what a stranger may hold open at once.
constexpr size_t kMaxUnknown = 64;

StoreBytes as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string as_text(const StoreBytes& bytes) { return {bytes.begin(), bytes.end()}; }

// A connection whose hello is not complete.
struct Unknown {
  FileDescriptor socket;
  HelloBytes hello{};
  size_t num_bytes = 0;
};

enum class HelloState { kPartial, kComplete, kWrong };

// Reads what is there.
HelloState read_some(Unknown& unknown) {
  while (unknown.num_bytes < kHelloSize) {
    const ssize_t received = ::recv(unknown.socket.get(), &unknown.hello[unknown.num_bytes],
                                    kHelloSize - unknown.num_bytes, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return HelloState::kPartial;
    if (received <= 0) return HelloState::kWrong;
    unknown.num_bytes += static_cast<size_t>(received);
  }
  return HelloState::kComplete;
}

// A new connection takes a hello at once: the kernel's buffer is empty.
Status say_hello(const FileDescriptor& socket, const Hello& hello) {
  const HelloBytes bytes = encode_hello(hello);
  if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(bytes.size())) {
    return Status();
  }
  return Error{std::strerror(errno)};
}

class Meeting {
 public:
  Meeting(const DirectOptions& options, ControlClient& client)
      : options_(options),
        client_(client),
        deadline_(Clock::now() + options.connect_timeout),
        peers_(static_cast<size_t>(options.num_ranks)) {}

  Result<std::vector<ConnectedPeer>> run() {
    TRIREME_TRY(const FileDescriptor listener, listen_on({.host = options_.host, .port = 0}));
    TRIREME_TRY(const uint16_t port, bound_port(listener));
    TRIREME_TRY(publish(port));
    for (int32_t rank = 0; rank < options_.num_ranks; ++rank) {
      if (rank == options_.rank) continue;
      TRIREME_TRY(const SocketAddress address, address_of(rank));
      peer(rank).host = address.host;
      if (rank < options_.rank) TRIREME_TRY(connect_to(rank, address));
    }
    TRIREME_TRY(accept_all(listener));
    // Only now: a rank below answers once it has done all of the above.
    for (int32_t rank = 0; rank < options_.rank; ++rank) {
      for (size_t urgency = 0; urgency < kNumUrgencies; ++urgency) {
        TRIREME_TRY(hear_answer(rank, static_cast<Urgency>(urgency)));
      }
    }
    return std::move(peers_);
  }

 private:
  ConnectedPeer& peer(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }

  std::string name(int32_t rank) {
    return fmt::format("{} at {}", options_.describe_rank(rank), peer(rank).host);
  }

  [[nodiscard]] std::chrono::milliseconds time_left() const {
    return std::chrono::milliseconds(milliseconds_until(deadline_, Clock::now()));
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(options_.connect_timeout).count();
  }

  // The token is rank 0's: the store is open to whoever knows that of the control channel.
  Status publish(uint16_t port) {
    const std::string address = to_text(SocketAddress{.host = options_.host, .port = port});
    TRIREME_TRY(client_.set(fmt::format("direct/{}", options_.rank), as_bytes(address)));
    if (options_.rank == 0) {
      token_ = make_control_token();
      return client_.set("direct/token", as_bytes(token_));
    }
    TRIREME_TRY(const StoreBytes token, client_.get("direct/token", time_left()));
    token_ = as_text(token);
    if (token_.size() == kTokenSize) return Status();
    return Error{fmt::format("rank 0 has a token of {} characters, {} are expected", token_.size(),
                             kTokenSize)};
  }

  Result<SocketAddress> address_of(int32_t rank) {
    const Result<StoreBytes> address = client_.get(fmt::format("direct/{}", rank), time_left());
    if (address.ok()) return parse_socket_address(as_text(address.value()));
    return while_doing(fmt::format("looking for {}", options_.describe_rank(rank)),
                       address.error());
  }

  [[nodiscard]] Hello own_hello(int32_t to, Urgency urgency) const {
    return {.token = token_,
            .from = options_.rank,
            .to = to,
            .num_ranks = options_.num_ranks,
            .urgency = urgency};
  }

  Status connect_to(int32_t rank, const SocketAddress& address) {
    for (size_t urgency = 0; urgency < kNumUrgencies; ++urgency) {
      FileDescriptor& socket = peer(rank).sockets[urgency];
      Result<FileDescriptor> connected = connect_until(address, deadline_);
      if (!connected.ok()) return while_doing(name(rank), connected.error());
      socket = std::move(connected).value();
      const Status said = say_hello(socket, own_hello(rank, static_cast<Urgency>(urgency)));
      if (!said.ok()) return while_doing("greeting " + name(rank), said.error());
    }
    return Status();
  }

  [[nodiscard]] size_t num_missing() const {
    size_t count = 0;
    for (size_t rank = static_cast<size_t>(options_.rank) + 1; rank < peers_.size(); ++rank) {
      for (const FileDescriptor& socket : peers_[rank].sockets) count += socket.is_open() ? 0 : 1;
    }
    return count;
  }

  Error missing() {
    std::vector<std::string> names;
    for (int32_t rank = options_.rank + 1; rank < options_.num_ranks; ++rank) {
      const auto is_open = [](const FileDescriptor& socket) { return socket.is_open(); };
      if (!std::ranges::all_of(peer(rank).sockets, is_open)) names.push_back(name(rank));
    }
    return Error{fmt::format("{} did not connect in {} s", fmt::join(names, ", "), seconds())};
  }

  Status accept_all(const FileDescriptor& listener) {
    std::list<Unknown> unknown;
    while (num_missing() > 0) {
      std::vector<pollfd> watched = {{.fd = listener.get(), .events = POLLIN, .revents = 0}};
      for (const Unknown& each : unknown) {
        watched.push_back({.fd = each.socket.get(), .events = POLLIN, .revents = 0});
      }
      const int ready =
          ::poll(watched.data(), watched.size(), milliseconds_until(deadline_, Clock::now()));
      if (ready == 0) return missing();
      for (FileDescriptor accepted = accept_one(listener); accepted.is_open();
           accepted = accept_one(listener)) {
        if (unknown.size() == kMaxUnknown) unknown.pop_front();
        unknown.push_back({.socket = std::move(accepted)});
      }
      TRIREME_TRY(hear(unknown));
    }
    return Status();
  }

  Status hear(std::list<Unknown>& unknown) {
    for (auto each = unknown.begin(); each != unknown.end();) {
      const HelloState state = read_some(*each);
      if (state == HelloState::kComplete) TRIREME_TRY(admit(*each));
      each = state == HelloState::kPartial ? std::next(each) : unknown.erase(each);
    }
    return Status();
  }

  // Whoever is no rank of this run is closed by whoever calls.
  Status admit(Unknown& unknown) {
    const Result<Hello> hello = decode_hello(unknown.hello);
    if (!hello.ok() || !tokens_are_equal(hello.value().token, token_)) return Status();
    const int32_t from = hello.value().from;
    const Urgency urgency = hello.value().urgency;
    if (from <= options_.rank || from >= options_.num_ranks ||
        hello.value() != Hello{.token = token_,
                               .from = from,
                               .to = options_.rank,
                               .num_ranks = options_.num_ranks,
                               .urgency = urgency}) {
      return Status();
    }
    FileDescriptor& place = peer(from).sockets[static_cast<size_t>(urgency)];
    if (place.is_open()) return Status();
    const Status said = say_hello(unknown.socket, own_hello(from, urgency));
    if (!said.ok()) return while_doing("greeting " + name(from), said.error());
    place = std::move(unknown.socket);
    return Status();
  }

  Status hear_answer(int32_t rank, Urgency urgency) {
    FileDescriptor& socket = peer(rank).sockets[static_cast<size_t>(urgency)];
    Unknown answer{.socket = std::move(socket)};
    HelloState state = read_some(answer);
    while (state == HelloState::kPartial) {
      pollfd watched{.fd = answer.socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&watched, 1, milliseconds_until(deadline_, Clock::now())) == 0) {
        return Error{fmt::format("{} does not answer for {} s", name(rank), seconds())};
      }
      state = read_some(answer);
    }
    if (state == HelloState::kWrong) {
      return Error{fmt::format("{} closed the connection", name(rank))};
    }
    const Result<Hello> hello = decode_hello(answer.hello);
    if (!hello.ok() || hello.value() != Hello{.token = token_,
                                              .from = rank,
                                              .to = options_.rank,
                                              .num_ranks = options_.num_ranks,
                                              .urgency = urgency}) {
      return Error{fmt::format("{}: another program has its port", name(rank))};
    }
    socket = std::move(answer.socket);
    return Status();
  }

  const DirectOptions& options_;
  ControlClient& client_;
  Clock::time_point deadline_;
  std::string token_;
  std::vector<ConnectedPeer> peers_;
};

}  // namespace

Result<std::vector<ConnectedPeer>> connect_peers(const DirectOptions& options,
                                                 ControlClient& client) {
  return Meeting(options, client).run();
}

}  // namespace trireme
