// How a rank joins its run: it connects to the hub, shows the token, and is welcomed or refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/result.h"
#include "trireme/exec/frame_channel.h"

namespace trireme {

struct JoinOptions {
  std::string address;   // "host:port"
  std::string hub_name;  // for messages: "the supervisor"
  std::string token;
  int32_t rank = -1;
  std::string host;  // of this rank, for messages
  std::chrono::milliseconds timeout{};
  // What it waits for: "cannot connect to node1:29500: Connection refused". Called after 5 s and
  // then every 30 s.
  std::function<void(const std::string&)> on_waiting;
  // A name that does not resolve may do so later.
  bool name_may_come = false;
};

// Tries to connect until the time-out; a refusal is final, and so is another program's answer.
[[nodiscard]] Result<FrameChannel> join_run(const JoinOptions& options);

}  // namespace trireme
