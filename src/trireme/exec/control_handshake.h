// How a rank joins its run: it connects to the hub, shows the token, and is welcomed or refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "trireme/base/result.h"
#include "trireme/exec/frame_channel.h"

namespace trireme {

struct JoinOptions {
  std::string address;   // "host:port"
  std::string hub_name;  // for messages: "the supervisor"
  std::string token;
  int32_t rank = -1;
  std::chrono::milliseconds timeout{};
};

// Tries to connect until the time-out; a refusal is final.
[[nodiscard]] Result<FrameChannel> join_run(const JoinOptions& options);

}  // namespace trireme
