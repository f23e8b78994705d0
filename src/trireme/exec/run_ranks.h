// run_ranks: ranks as threads of one process, for tests and whole runs over a loopback network.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

// Runs body(rank) for every rank, each on a thread of its own, and returns when all have ended,
// with the outcome of each. A body whose rank fails must make the others end too (shut_down).
[[nodiscard]] inline std::vector<Status> run_ranks(int32_t num_ranks,
                                                   const std::function<Status(int32_t)>& body) {
  std::vector<Status> outcomes(static_cast<size_t>(num_ranks));
  std::vector<std::jthread> threads;
  threads.reserve(outcomes.size());
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back(
        [&body, rank, &outcome = outcomes[static_cast<size_t>(rank)]] { outcome = body(rank); });
  }
  threads.clear();  // joins
  return outcomes;
}

}  // namespace trireme
