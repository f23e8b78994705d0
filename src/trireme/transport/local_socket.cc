#include "trireme/transport/local_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

using PassedSpace = std::array<char, CMSG_SPACE(kMaxPassed * sizeof(int))>;

struct LocalAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

LocalAddress address_of(const std::string& name) {
  LocalAddress local;
  TRIREME_CHECK(!name.empty() && name.size() <= kMaxLocalName,
                "the name of a local socket is empty or too long");
  local.address.sun_family = AF_UNIX;
  // The zero before the name makes it an abstract one.
  std::ranges::copy(name, &local.address.sun_path[1]);
  local.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return local;
}

FileDescriptor make_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Result<FileDescriptor> listen_locally(const std::string& name) {
  FileDescriptor listener = make_socket();
  const LocalAddress local = address_of(name);
  if (!listener.is_open() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&local.address), local.size) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return Error{std::string("listening on a local socket: ") + std::strerror(errno)};
  }
  return listener;
}

FileDescriptor connect_locally(const std::string& name) {
  FileDescriptor socket = make_socket();
  const LocalAddress local = address_of(name);
  // At once or not at all: a listener that has no place for it counts as none.
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&local.address), local.size) != 0) {
    return {};
  }
  return socket;
}

ssize_t send_passing(int socket, std::span<const std::byte> bytes, std::span<const int> passed) {
  TRIREME_CHECK(passed.size() <= kMaxPassed, "more file descriptors than a message may pass");
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) PassedSpace space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!passed.empty()) {
    message.msg_control = space.data();
    message.msg_controllen = CMSG_SPACE(passed.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(passed.size_bytes());
    std::memcpy(CMSG_DATA(header), passed.data(), passed.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_passed(int socket, std::span<std::byte> bytes,
                       std::vector<FileDescriptor>& passed) {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) PassedSpace space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  const ssize_t received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      passed.emplace_back(fd);
    }
  }
  return received;
}

}  // namespace trireme
