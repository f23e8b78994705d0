#include "trireme/exec/control_handshake.h"

#include <optional>
#include <utility>

#include <poll.h>

#include <fmt/format.h>

#include "trireme/exec/control_protocol.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {

Result<FrameChannel> join_run(const JoinOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + options.timeout;
  TRIREME_TRY(const SocketAddress address, parse_socket_address(options.address));
  TRIREME_TRY(FileDescriptor socket, connect_until(address, deadline));
  FrameChannel channel(std::move(socket), kMaxFrameBytes);
  channel.queue(
      make_message(MessageKind::kHello, options.rank, {std::string(kControlMagic), options.token}));
  while (true) {
    bool is_over = channel.send_some() == ChannelState::kEnded;
    is_over = channel.receive_some() == ChannelState::kEnded || is_over;
    TRIREME_TRY(const std::optional<ControlMessage> answer, channel.next());
    if (answer.has_value() && answer->kind == MessageKind::kWelcome) return channel;
    if (answer.has_value() && answer->kind == MessageKind::kRefused) {
      return Error{fmt::format("{} at {} refused rank {}: {}", options.hub_name, options.address,
                               options.rank, answer->texts[0])};
    }
    if (is_over || answer.has_value()) {
      return Error{
          fmt::format("{} closed the connection of rank {}: the token is that of another run, or "
                      "the port belongs to another program",
                      options.address, options.rank)};
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      return Error{fmt::format("{} did not answer rank {} within {:g} s", options.address,
                               options.rank,
                               std::chrono::duration<double>(options.timeout).count())};
    }
    pollfd watched{.fd = channel.fd(), .events = POLLIN, .revents = 0};
    if (channel.wants_to_send()) watched.events |= POLLOUT;
    ::poll(&watched, 1, milliseconds_until(deadline, now));
  }
}

}  // namespace trireme
