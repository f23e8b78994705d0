// The key-value store of a launcher such as torchrun, used once: to find rank 0. Torch-free to
// include.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/result.h"

namespace trireme {

struct LauncherStore {
  std::string host;
  uint16_t port = 0;
  bool serves = false;  // no agent serves the store: this rank does
  std::string prefix;
};

// The rank with `text` stores it under `key`; the others wait for it. Returns the text.
[[nodiscard]] Result<std::string> share_text(const LauncherStore& store, const std::string& key,
                                             const std::optional<std::string>& text);

}  // namespace trireme
