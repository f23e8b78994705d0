// RunFailure: why a run ended, as its last lines tell it.
//
//   rank 2 (stage 0, replica 1) died: killed by signal 9 (SIGKILL)
//   rank 0 (stage 0, replica 0) was in RG1 (gradients of micro-batch 1 from rank 1)
//   rank 1 (stage 1, replica 0) had finished
//
// With ranks on several hosts each is named with its own: "rank 2 (stage 0, replica 1) on node7".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme {

enum class FailureKind {
  kDied,          // its process ended
  kDisconnected,  // its connection ended; nothing is known of its process
  kLost,          // it was silent for too long
  kFailed,        // it said so itself
};

enum class SurvivorState { kAnswered, kSilent, kEnded, kNotConnected, kFinished };

struct Survivor {
  int32_t rank = -1;
  SurvivorState state = SurvivorState::kSilent;
  std::string where;  // what it was doing, when kAnswered
  std::string host;   // empty when all ranks are on one host
};

struct RunFailure {
  int32_t rank = -1;  // the first cause
  FailureKind kind = FailureKind::kDied;
  std::string reason;
  std::string host;                 // as of a survivor
  std::vector<Survivor> survivors;  // every other rank, ascending
};

// "rank 2 (stage 0, replica 1)": the owner knows the plan.
using DescribeRank = std::function<std::string(int32_t)>;
[[nodiscard]] std::string describe_bare_rank(int32_t rank);  // "rank 2"

// The first of the lines above, and all of them. No newlines at the ends.
[[nodiscard]] std::string describe_cause(const RunFailure& failure, const DescribeRank& describe);
[[nodiscard]] std::vector<std::string> describe_failure(const RunFailure& failure,
                                                        const DescribeRank& describe);

// The status of waitpid: "killed by signal 9 (SIGKILL)", "exited with status 3".
[[nodiscard]] std::string describe_wait_status(int wait_status);
// The same for a rank that had not finished: "exited with status 0 before it had finished".
[[nodiscard]] std::string describe_unfinished_exit(int wait_status);

}  // namespace trireme
