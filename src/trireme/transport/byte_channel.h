// ByteChannel: how the bytes of one stream reach a peer and come from it.
//
// Nothing blocks. Used by one thread at a time. Epoll tells each change of fd() once (EPOLLET), and
// whoever sleeps in epoll_wait() passes it on to hear().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <sys/types.h>
#include <sys/uio.h>

#include "trireme/exec/file_descriptor.h"

namespace trireme {

// Which bytes that come a rank sleeps for.
enum class Rest : uint8_t {
  kAwake,      // none: it looks itself
  kUntilFull,  // those without which the peer can send no more: nobody waits for them
  kForFrames,  // those that are a whole: what a send() of the peer leaves, or receive() lacks
  kForBytes,   // the first: somebody waits for them
};

// What the kernel has counted of a connection since its begin.
struct SentCounts {
  uint64_t confirmed_bytes = 0;      // that the peer's kernel has
  uint64_t busy_us = 0;              // in which some were on their way
  uint32_t least_round_trip_us = 0;  // of the last minutes
};

class ByteChannel {
 public:
  virtual ~ByteChannel() = default;

  [[nodiscard]] virtual int fd() const = 0;
  // `events`: of epoll.
  virtual void hear(uint32_t events) = 0;
  // Whether send() may take something, and whether receive() may have something or the end.
  [[nodiscard]] virtual bool can_send() const = 0;
  [[nodiscard]] virtual bool can_receive() const = 0;
  // As ::sendmsg() and ::recvmsg() of a socket that does not block: how many bytes of the parts, in
  // their order, have moved, or -1 and errno. 0 from receive(): the peer has closed its end. A part
  // that was not filled means that can_send() or can_receive() is false until something changes:
  // of receive() possibly until the first of the parts can be filled.
  virtual ssize_t send(std::span<iovec> parts) = 0;
  virtual ssize_t receive(std::span<iovec> parts) = 0;
  // What this rank is to be woken for, `for_room` to send, too. False: there is something already,
  // so do not sleep. What has come meanwhile is seen from kAwake on.
  virtual bool rest(Rest rest, bool for_room) = 0;
  // Nothing of what is no network.
  [[nodiscard]] virtual std::optional<SentCounts> sent_counts() const { return std::nullopt; }
};

// A connected socket that does not block.
[[nodiscard]] std::unique_ptr<ByteChannel> make_socket_channel(FileDescriptor socket);

}  // namespace trireme
