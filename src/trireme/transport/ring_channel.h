// Memory that two ranks of one host share for one stream, and the ByteChannel over it.
//
//   page 0        for each direction: head, the bytes ever written; tail, the bytes ever read
//                 for each side: what it sleeps for
//   then          a ring of kRingBytes from the maker to the taker, and one back
//
// Either side copies into its ring and out of the other's, and publishes in pieces, so that both
// copy at once. Who finds nothing to do says in page 0 what it sleeps for; the other side then
// writes to its eventfd. Who computes sleeps until the ring is full, and costs its peer no system
// call. A Unix socket between both tells when one has ended: the kernel closes it whatever a
// process died of, and what was published before can still be read. The memory has no name, so
// nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"
#include "trireme/transport/byte_channel.h"

namespace trireme {

// Larger ones leave the caches of the cores, smaller ones make one side wait for the other.
inline constexpr size_t kRingBytes = size_t{1} << 20;

enum class RingSide : uint8_t { kMaker, kTaker };

struct RingConnection {
  FileDescriptor socket;     // to the peer; nothing is sent on it
  FileDescriptor memory;     // of make_ring_memory(), the same for both
  FileDescriptor peer_wake;  // eventfd that wakes the peer
};

// Sealed: it cannot shrink under whoever has it mapped. Errors: the system has no memory for it.
[[nodiscard]] Result<FileDescriptor> make_ring_memory();
// Errors: the memory is not of make_ring_memory(), or cannot be mapped.
[[nodiscard]] Result<std::unique_ptr<ByteChannel>> make_ring_channel(RingConnection connection,
                                                                     RingSide side);

}  // namespace trireme
