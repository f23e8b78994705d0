#include "trireme/exec/stream_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> resolve(const SocketAddress& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int failure = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (failure != 0) {
    return Error{fmt::format("cannot resolve host {}: {}", address.host, ::gai_strerror(failure))};
  }
  return AddressList(found, &::freeaddrinfo);
}

FileDescriptor open_socket(const addrinfo& target) {
  return FileDescriptor(::socket(
      target.ai_family, target.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, target.ai_protocol));
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// 0 or the errno of the attempt.
int finish_connecting(int fd, const addrinfo& target, Clock::time_point deadline) {
  if (::connect(fd, target.ai_addr, target.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd watched{.fd = fd, .events = POLLOUT, .revents = 0};
  while (true) {
    const int ready = ::poll(&watched, 1, milliseconds_until(deadline, Clock::now()));
    if (ready == 0) return ETIMEDOUT;
    if (ready > 0) break;
    if (errno != EINTR) return errno;
  }
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
  return failure;
}

// Loopback ports are handed out from one range for both ends, so connecting to a port on which
// nobody listens can connect to itself; such a socket is of no use and holds the port.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

}  // namespace

int milliseconds_until(Clock::time_point deadline, Clock::time_point now) {
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<int64_t>(left, 1'000'000'000));
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  const Error wrong{fmt::format("{} is no address of the form host:port", text)};
  if (colon == std::string_view::npos) return wrong;
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return wrong;
  }
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool is_number = failure == std::errc() && end == digits.data() + digits.size();
  if (host.empty() || !is_number) return wrong;
  return SocketAddress{.host = std::string(host), .port = port};
}

std::string own_host(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> host{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return host.data();
}

std::string peer_host(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  std::array<char, NI_MAXHOST> host{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&peer), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return host.data();
}

std::string to_text(const SocketAddress& address) {
  const bool needs_brackets = address.host.find(':') != std::string::npos;
  return needs_brackets ? fmt::format("[{}]:{}", address.host, address.port)
                        : fmt::format("{}:{}", address.host, address.port);
}

Status check_resolves(const SocketAddress& address) {
  TRIREME_TRY(const AddressList targets, resolve(address, 0));
  return Status();
}

Result<FileDescriptor> listen_on(const SocketAddress& address) {
  TRIREME_TRY(AddressList targets, resolve(address, AI_PASSIVE));
  int failure = 0;
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    FileDescriptor listener = open_socket(*target);
    // A fixed port is free again as soon as nobody listens, whatever lingers of connections.
    const int on = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener.is_open() && ::bind(listener.get(), target->ai_addr, target->ai_addrlen) == 0 &&
        ::listen(listener.get(), SOMAXCONN) == 0) {
      return listener;
    }
    failure = errno;
  }
  return Error{fmt::format("cannot listen on {}: {}", to_text(address), std::strerror(failure))};
}

Result<uint16_t> bound_port(const FileDescriptor& listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return Error{fmt::format("cannot read the port of a socket: {}", std::strerror(errno))};
  }
  if (bound.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

FileDescriptor accept_one(const FileDescriptor& listener) {
  FileDescriptor accepted(
      ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.is_open()) send_at_once(accepted.get());
  return accepted;
}

Result<FileDescriptor> connect_until(const SocketAddress& address, Clock::time_point deadline) {
  TRIREME_TRY(AddressList targets, resolve(address, 0));
  std::chrono::milliseconds pause(10);
  while (true) {
    int failure = 0;
    for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
      FileDescriptor socket = open_socket(*target);
      failure = socket.is_open() ? finish_connecting(socket.get(), *target, deadline) : errno;
      if (failure == 0 && !is_connected_to_itself(socket.get())) {
        send_at_once(socket.get());
        return socket;
      }
      if (failure == 0) failure = ECONNREFUSED;
    }
    if (Clock::now() + pause >= deadline) {
      return Error{
          fmt::format("cannot connect to {}: {}", to_text(address), std::strerror(failure))};
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(250));
  }
}

}  // namespace trireme
