// TCP sockets for the control channel: addresses as text, listening, connecting with retries.
//
// Every socket is non-blocking, closed on exec, and sends small frames at once (TCP_NODELAY).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

struct SocketAddress {
  std::string host;  // a name or a number, without brackets
  uint16_t port = 0;

  bool operator==(const SocketAddress&) const = default;
};

// "127.0.0.1:4000", "node7:4000", "[::1]:4000".
[[nodiscard]] Result<SocketAddress> parse_socket_address(std::string_view text);
[[nodiscard]] std::string to_text(const SocketAddress& address);

[[nodiscard]] Status check_resolves(const SocketAddress& address);

// Listens on the host's address; port 0 lets the kernel choose one.
[[nodiscard]] Result<FileDescriptor> listen_on(const SocketAddress& address);
// The port that a listening socket got.
[[nodiscard]] Result<uint16_t> bound_port(const FileDescriptor& listener);
// The numeric address of this end of a connection: "127.0.0.1", "fe80::1%eth0". Empty when unknown.
[[nodiscard]] std::string own_host(int socket);
// The same of the other end.
[[nodiscard]] std::string peer_host(int socket);
// Non-blocking; not open when no connection waits (errno says why).
[[nodiscard]] FileDescriptor accept_one(const FileDescriptor& listener);

// Tries until the connection stands or the deadline has passed: the other side may not listen yet.
[[nodiscard]] Result<FileDescriptor> connect_until(const SocketAddress& address,
                                                   std::chrono::steady_clock::time_point deadline);

// Milliseconds until the deadline for poll(): rounded up, 0 when it has passed.
[[nodiscard]] int milliseconds_until(std::chrono::steady_clock::time_point deadline,
                                     std::chrono::steady_clock::time_point now);

}  // namespace trireme
