#include "trireme/transport/connect.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <span>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/exec/stream_socket.h"
#include "trireme/transport/local_socket.h"
#include "trireme/transport/ring_channel.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// Of what a stranger may hold open at once.
constexpr size_t kMaxUnknown = 64;
constexpr std::array kUrgencies = {Urgency::kUrgent, Urgency::kBulk};

StoreBytes as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string as_text(const StoreBytes& bytes) { return {bytes.begin(), bytes.end()}; }

// A connection to a peer that has not said its hello yet, or to a stranger.
struct Contact {
  FileDescriptor socket;
  bool is_local = false;  // and passes file descriptors
  HelloBytes hello{};
  size_t num_bytes = 0;
  std::vector<FileDescriptor> passed;
  FileDescriptor memory;  // that this side has made
};

enum class HelloState { kPartial, kComplete, kWrong };

// Reads what is there.
HelloState read_some(Contact& contact) {
  while (contact.num_bytes < kHelloSize) {
    const auto left = std::span(contact.hello).subspan(contact.num_bytes);
    const ssize_t received =
        contact.is_local ? receive_passed(contact.socket.get(), left, contact.passed)
                         : ::recv(contact.socket.get(), left.data(), left.size(), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return HelloState::kPartial;
    if (received <= 0 || contact.passed.size() > kMaxPassed) return HelloState::kWrong;
    contact.num_bytes += static_cast<size_t>(received);
  }
  return HelloState::kComplete;
}

// A new connection takes a hello at once: the kernel's buffer is empty.
Status say_hello(const FileDescriptor& socket, const Hello& hello,
                 std::span<const int> passed = {}) {
  const HelloBytes bytes = encode_hello(hello);
  if (send_passing(socket.get(), bytes, passed) == static_cast<ssize_t>(bytes.size())) {
    return Status();
  }
  return Error{std::strerror(errno)};
}

std::unique_ptr<ByteChannel> make_tcp_channel(FileDescriptor socket) {
  // So that what is urgent is not behind what the kernel has not sent yet.
  const auto unsent = static_cast<int>(kMaxFrameData);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  return make_socket_channel(std::move(socket));
}

// Where a rank is reached, and its text: "127.0.0.1:4000", and in the next line the name of its
// local socket where it has one.
struct Place {
  SocketAddress address;
  std::string local_name;
};

std::string place_text(const Place& place) {
  return to_text(place.address) + (place.local_name.empty() ? "" : "\n" + place.local_name);
}

Result<Place> parse_place(const std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  TRIREME_TRY(SocketAddress address, parse_socket_address(std::string_view(text).substr(0, end)));
  std::string name = end < text.size() ? text.substr(end + 1) : "";
  if (name.size() > kMaxLocalName) return Error{"a local socket with too long a name"};
  return Place{.address = std::move(address), .local_name = std::move(name)};
}

size_t num_missing_of(const ConnectedPeer& peer) {
  return static_cast<size_t>(
      std::ranges::count_if(peer.channels, [](const auto& each) { return each == nullptr; }));
}

class Meeting {
 public:
  Meeting(const DirectOptions& options, const WakeEvent& wake, ControlClient& client)
      : options_(options),
        wake_(wake),
        client_(client),
        deadline_(Clock::now() + options.connect_timeout),
        peers_(static_cast<size_t>(options.num_ranks)),
        places_(peers_.size()),
        below_(static_cast<size_t>(options.rank)) {}

  Result<std::vector<ConnectedPeer>> run() {
    TRIREME_TRY(const FileDescriptor listener, listen_on({.host = options_.host, .port = 0}));
    TRIREME_TRY(const uint16_t port, bound_port(listener));
    const FileDescriptor local_listener = listen_to_this_host();
    TRIREME_TRY(publish(port));
    for (int32_t rank = 0; rank < options_.num_ranks; ++rank) {
      if (rank == options_.rank) continue;
      TRIREME_TRY(place(rank), place_of(rank));
      peer(rank).host = place(rank).address.host;
      if (rank > options_.rank) continue;
      for (const Urgency urgency : kUrgencies) TRIREME_TRY(connect_to(rank, urgency));
    }
    TRIREME_TRY(accept_all({&listener, &local_listener}));
    // Only now: a rank below answers once it has done all of the above.
    for (int32_t rank = 0; rank < options_.rank; ++rank) {
      for (const Urgency urgency : kUrgencies) TRIREME_TRY(hear_answer(rank, urgency));
    }
    return std::move(peers_);
  }

 private:
  ConnectedPeer& peer(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }
  Place& place(int32_t rank) { return places_[static_cast<size_t>(rank)]; }
  std::unique_ptr<ByteChannel>& channel(int32_t rank, Urgency urgency) {
    return peer(rank).channels[static_cast<size_t>(urgency)];
  }
  Contact& contact_below(int32_t rank, Urgency urgency) {
    return below_[static_cast<size_t>(rank)][static_cast<size_t>(urgency)];
  }

  std::string name(int32_t rank) {
    return fmt::format("{} at {}", options_.describe_rank(rank), peer(rank).host);
  }

  [[nodiscard]] std::chrono::milliseconds time_left() const {
    return std::chrono::milliseconds(milliseconds_until(deadline_, Clock::now()));
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(options_.connect_timeout).count();
  }

  // Not open, and without a name, where there is none.
  FileDescriptor listen_to_this_host() {
    if (!options_.shares_memory) return {};
    const std::string name = "trireme-" + make_control_token();
    Result<FileDescriptor> listener = listen_locally(name);
    if (!listener.ok()) return {};
    place(options_.rank).local_name = name;
    return std::move(listener).value();
  }

  // The token is rank 0's: the store is open to whoever knows that of the control channel.
  Status publish(uint16_t port) {
    place(options_.rank).address = {.host = options_.host, .port = port};
    TRIREME_TRY(client_.set(fmt::format("direct/{}", options_.rank),
                            as_bytes(place_text(place(options_.rank)))));
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

  Result<Place> place_of(int32_t rank) {
    const Result<StoreBytes> text = client_.get(fmt::format("direct/{}", rank), time_left());
    if (text.ok()) return parse_place(as_text(text.value()));
    return while_doing(fmt::format("looking for {}", options_.describe_rank(rank)), text.error());
  }

  [[nodiscard]] Hello own_hello(int32_t to, Urgency urgency) const {
    return {.token = token_,
            .from = options_.rank,
            .to = to,
            .num_ranks = options_.num_ranks,
            .urgency = urgency};
  }

  Status connect_to(int32_t rank, Urgency urgency) {
    if (connect_locally_to(rank, urgency)) return Status();
    Contact contact;
    Result<FileDescriptor> connected = connect_until(place(rank).address, deadline_);
    if (!connected.ok()) return while_doing(name(rank), connected.error());
    contact.socket = std::move(connected).value();
    const Status said = say_hello(contact.socket, own_hello(rank, urgency));
    if (!said.ok()) return while_doing("greeting " + name(rank), said.error());
    contact_below(rank, urgency) = std::move(contact);
    return Status();
  }

  // False: the peer is on another host, or one of both cannot share memory.
  bool connect_locally_to(int32_t rank, Urgency urgency) {
    if (!options_.shares_memory || place(rank).local_name.empty()) return false;
    Contact contact{.socket = connect_locally(place(rank).local_name), .is_local = true};
    if (!contact.socket.is_open()) return false;
    Result<FileDescriptor> memory = make_ring_memory();
    if (!memory.ok()) return false;
    contact.memory = std::move(memory).value();
    const std::array<int, 2> passed = {contact.memory.get(), wake_.fd()};
    if (!say_hello(contact.socket, own_hello(rank, urgency), passed).ok()) return false;
    contact_below(rank, urgency) = std::move(contact);
    return true;
  }

  [[nodiscard]] size_t num_missing() const {
    size_t count = 0;
    for (size_t rank = static_cast<size_t>(options_.rank) + 1; rank < peers_.size(); ++rank) {
      count += num_missing_of(peers_[rank]);
    }
    return count;
  }

  Error missing() {
    std::vector<std::string> names;
    for (int32_t rank = options_.rank + 1; rank < options_.num_ranks; ++rank) {
      if (num_missing_of(peer(rank)) > 0) names.push_back(name(rank));
    }
    return Error{fmt::format("{} did not connect in {} s", fmt::join(names, ", "), seconds())};
  }

  struct Listeners {
    const FileDescriptor* tcp = nullptr;
    const FileDescriptor* local = nullptr;  // may not be open: poll() skips it
  };

  Status accept_all(const Listeners& listeners) {
    std::list<Contact> unknown;
    while (num_missing() > 0) {
      std::vector<pollfd> watched = {
          {.fd = listeners.tcp->get(), .events = POLLIN, .revents = 0},
          {.fd = listeners.local->get(), .events = POLLIN, .revents = 0}};
      for (const Contact& each : unknown) {
        watched.push_back({.fd = each.socket.get(), .events = POLLIN, .revents = 0});
      }
      const int ready =
          ::poll(watched.data(), watched.size(), milliseconds_until(deadline_, Clock::now()));
      if (ready == 0) return missing();
      accept_from(*listeners.tcp, /*is_local=*/false, unknown);
      if (listeners.local->is_open()) accept_from(*listeners.local, /*is_local=*/true, unknown);
      TRIREME_TRY(hear(unknown));
    }
    return Status();
  }

  static void accept_from(const FileDescriptor& listener, bool is_local,
                          std::list<Contact>& unknown) {
    for (FileDescriptor accepted = accept_one(listener); accepted.is_open();
         accepted = accept_one(listener)) {
      if (unknown.size() == kMaxUnknown) unknown.pop_front();
      unknown.push_back({.socket = std::move(accepted), .is_local = is_local});
    }
  }

  Status hear(std::list<Contact>& unknown) {
    for (auto each = unknown.begin(); each != unknown.end();) {
      const HelloState state = read_some(*each);
      if (state == HelloState::kComplete) TRIREME_TRY(admit(*each));
      each = state == HelloState::kPartial ? std::next(each) : unknown.erase(each);
    }
    return Status();
  }

  // Whoever is no rank of this run is closed by whoever calls.
  Status admit(Contact& contact) {
    const Result<Hello> hello = decode_hello(contact.hello);
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
    if (channel(from, urgency) != nullptr) return Status();
    if (contact.is_local) return admit_local(from, urgency, contact);
    const Status said = say_hello(contact.socket, own_hello(from, urgency));
    if (!said.ok()) return while_doing("greeting " + name(from), said.error());
    channel(from, urgency) = make_tcp_channel(std::move(contact.socket));
    return Status();
  }

  // One whose memory is of no use is closed and comes again by TCP.
  Status admit_local(int32_t from, Urgency urgency, Contact& contact) {
    if (contact.passed.size() != 2) return Status();
    const int socket = contact.socket.get();
    Result<std::unique_ptr<ByteChannel>> made =
        make_ring_channel({.socket = std::move(contact.socket),
                           .memory = std::move(contact.passed[0]),
                           .peer_wake = std::move(contact.passed[1])},
                          RingSide::kTaker);
    if (!made.ok()) return Status();
    const std::array<int, 1> passed = {wake_.fd()};
    if (send_passing(socket, encode_hello(own_hello(from, urgency)), passed) !=
        static_cast<ssize_t>(kHelloSize)) {
      return Status();
    }
    channel(from, urgency) = std::move(made).value();
    peer(from).shares_memory = true;
    return Status();
  }

  Status hear_answer(int32_t rank, Urgency urgency) {
    Contact& answer = contact_below(rank, urgency);
    HelloState state = read_some(answer);
    while (state == HelloState::kPartial) {
      pollfd watched{.fd = answer.socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&watched, 1, milliseconds_until(deadline_, Clock::now())) == 0) {
        return Error{fmt::format("{} does not answer for {} s", name(rank), seconds())};
      }
      state = read_some(answer);
    }
    if (state == HelloState::kWrong) {
      if (answer.is_local) return go_by_tcp(rank, urgency);
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
    return answer.is_local ? take_local(rank, urgency, answer) : take_tcp(rank, urgency, answer);
  }

  // The peer has closed the local socket: it cannot use the memory.
  Status go_by_tcp(int32_t rank, Urgency urgency) {
    place(rank).local_name.clear();
    TRIREME_TRY(connect_to(rank, urgency));
    return hear_answer(rank, urgency);
  }

  Status take_tcp(int32_t rank, Urgency urgency, Contact& answer) {
    channel(rank, urgency) = make_tcp_channel(std::move(answer.socket));
    return Status();
  }

  Status take_local(int32_t rank, Urgency urgency, Contact& answer) {
    if (answer.passed.size() != 1) {
      return Error{fmt::format("{}: another program has its local socket", name(rank))};
    }
    Result<std::unique_ptr<ByteChannel>> made =
        make_ring_channel({.socket = std::move(answer.socket),
                           .memory = std::move(answer.memory),
                           .peer_wake = std::move(answer.passed[0])},
                          RingSide::kMaker);
    if (!made.ok()) return while_doing(name(rank), made.error());
    channel(rank, urgency) = std::move(made).value();
    peer(rank).shares_memory = true;
    return Status();
  }

  const DirectOptions& options_;
  const WakeEvent& wake_;
  ControlClient& client_;
  Clock::time_point deadline_;
  std::string token_;
  std::vector<ConnectedPeer> peers_;                       // by rank
  std::vector<Place> places_;                              // by rank
  std::vector<std::array<Contact, kNumUrgencies>> below_;  // by rank: whose answers are awaited
};

}  // namespace

Result<std::vector<ConnectedPeer>> connect_peers(const DirectOptions& options,
                                                 const WakeEvent& wake, ControlClient& client) {
  return Meeting(options, wake, client).run();
}

}  // namespace trireme
