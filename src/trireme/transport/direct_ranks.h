// Ranks of the direct transport as threads of one process, with a hub of their own; for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "trireme/exec/transport.h"
#include "trireme/transport/direct_transport.h"

namespace trireme {

// `change` may change a rank's options.
[[nodiscard]] std::vector<std::unique_ptr<DirectTransport>> make_direct_ranks(
    int32_t num_ranks, const std::function<void(DirectOptions&)>& change = {});

[[nodiscard]] inline std::vector<std::unique_ptr<Transport>> as_transports(
    std::vector<std::unique_ptr<DirectTransport>> ranks) {
  return {std::make_move_iterator(ranks.begin()), std::make_move_iterator(ranks.end())};
}

// A `change`: ranks that share no memory.
inline void by_tcp(DirectOptions& options) { options.shares_memory = false; }

}  // namespace trireme
