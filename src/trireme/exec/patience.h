// Patience: waits for what another process has to do, and says so in the meantime.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  // `on_waiting` is told what is waited for, after 5 s and then every 30 s; it may be empty.
  Patience(std::chrono::milliseconds timeout, std::function<void(const std::string&)> on_waiting);

  // When to look again at the latest: the next word, or the end.
  [[nodiscard]] Clock::time_point next() const;
  // False: the time is over. `what` is a sentence: "cannot connect to node1:29500: ...".
  [[nodiscard]] bool goes_on(const std::string& what);
  // "..., for 300 s"
  [[nodiscard]] Error given_up(const std::string& what) const;

 private:
  std::chrono::milliseconds timeout_;
  std::function<void(const std::string&)> on_waiting_;
  Clock::time_point deadline_;
  Clock::time_point next_notice_;
};

// Whether a name that does not resolve may do so later.
enum class UnknownName : uint8_t { kIsWrong, kMayCome };

// Tries to connect as long as the patience lasts.
[[nodiscard]] Result<FileDescriptor> connect_patiently(
    const SocketAddress& address, Patience& patience,
    UnknownName unknown_name = UnknownName::kIsWrong);

}  // namespace trireme
