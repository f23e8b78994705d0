#include "trireme/exec/control_handshake.h"

#include <optional>
#include <utility>

#include <poll.h>

#include <fmt/format.h>

#include "trireme/exec/control_protocol.h"
#include "trireme/exec/patience.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {

Result<FrameChannel> join_run(const JoinOptions& options) {
  Patience patience(options.timeout, options.on_waiting);
  TRIREME_TRY(const SocketAddress address, parse_socket_address(options.address));
  TRIREME_TRY(
      FileDescriptor socket,
      connect_patiently(address, patience,
                        options.name_may_come ? UnknownName::kMayCome : UnknownName::kIsWrong));
  FrameChannel channel(std::move(socket), kMaxFrameBytes);
  channel.queue(make_message(MessageKind::kHello, options.rank,
                             {std::string(kControlMagic), options.token, options.host}));
  while (true) {
    bool is_over = channel.send_some() == ChannelState::kEnded;
    is_over = channel.receive_some() == ChannelState::kEnded || is_over;
    const Result<std::optional<ControlMessage>> next = channel.next();
    if (!next.ok()) {
      return Error{fmt::format("another program has the port {}: {}", options.address,
                               next.error().message)};
    }
    const std::optional<ControlMessage>& answer = next.value();
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
    const std::string silent =
        fmt::format("{} does not answer rank {}", options.address, options.rank);
    if (!patience.goes_on(silent)) return patience.given_up(silent);
    pollfd watched{.fd = channel.fd(), .events = POLLIN, .revents = 0};
    if (channel.wants_to_send()) watched.events |= POLLOUT;
    ::poll(&watched, 1, milliseconds_until(patience.next(), Patience::Clock::now()));
  }
}

}  // namespace trireme
