// The key-value store of torchrun's agent, used once: to find rank 0. Torch-free to include.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trireme/base/result.h"

namespace trireme {

struct LauncherStore {
  std::string host;
  uint16_t port = 0;
  std::string prefix;
  std::chrono::milliseconds timeout{};
  // What it waits for, after 5 s and then every 30 s.
  std::function<void(const std::string&)> on_waiting;
};

// The rank with `text` stores it under `key`; the others wait for it. Returns the text.
[[nodiscard]] Result<std::string> share_text(const LauncherStore& store, const std::string& key,
                                             const std::optional<std::string>& text);

}  // namespace trireme
