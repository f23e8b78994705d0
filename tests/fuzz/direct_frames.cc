// What anybody can send to the port of a rank's transfers, and what a rank that is admitted can
// send to a peer that has posted sends and receives.

#include <algorithm>
#include <vector>

#include <sys/socket.h>

#include "trireme/transport/peer_streams.h"
#include "trireme/transport/wire.h"

#include "fuzz.h"

using namespace trireme;

namespace {

void fuzz_hello(std::string_view bytes) {
  HelloBytes hello{};
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), std::min(bytes.size(), kHelloSize),
              hello.begin());
  const Result<Hello> decoded = decode_hello(hello);
  if (!fuzz::is_accepted(decoded)) return;
  TRIREME_CHECK(encode_hello(decoded.value()) == hello, "a hello does not survive");
}

// The two ends of a stream that is connected to nobody.
FrameStream stream_to(FileDescriptor& other_end) {
  int ends[2];
  TRIREME_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no sockets");
  other_end = FileDescriptor(ends[1]);
  return FrameStream(make_socket_channel(FileDescriptor(ends[0])));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz_hello(fuzz::text_of(data, size));
  FileDescriptor urgent;
  FileDescriptor bulk;
  PeerStreams streams(PeerStreams::Streams{stream_to(urgent), stream_to(bulk)});
  std::vector<std::byte> sent(100);
  std::vector<std::byte> received(100);
  size_t num_done = 0;
  uint64_t num_bytes = 0;
  const MessageWatch watch{.on_moved = [&num_done](std::optional<uint64_t>) { ++num_done; },
                           .on_progress = [&num_bytes](uint64_t moved) { num_bytes += moved; }};
  streams.send({.space = 0, .tag = 1}, sent, sent.size(), Urgency::kBulk, watch);
  streams.receive({.space = 0, .tag = 2}, received, received.size(), watch);
  streams.receive({.space = 0, .tag = 2}, {}, 0, watch);
  if (::send(urgent.get(), data, std::min(size, size_t{1} << 16), MSG_NOSIGNAL) < 0) return 0;
  urgent.reset();
  FrameStream& stream = streams.stream(Urgency::kUrgent);
  while (stream.receive_some(streams) != StreamState::kEnded) {
  }
  if (!stream.end_reason().empty()) fuzz::expect_readable(stream.end_reason());
  TRIREME_CHECK(num_done <= 3, "an operation ends twice");
  TRIREME_CHECK(num_bytes <= sent.size() + received.size(), "more has moved than there is");
  return 0;
}
