#include "trireme/exec/run_failure.h"

#include <cstring>

#include <sys/wait.h>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

std::string describe_survivor(const Survivor& survivor) {
  switch (survivor.state) {
    case SurvivorState::kAnswered:
      return "was in " + survivor.where;
    case SurvivorState::kSilent:
      return "did not say what it was doing";
    case SurvivorState::kEnded:
      return "ended as well";
    case SurvivorState::kNotConnected:
      return "was starting";
    case SurvivorState::kFinished:
      return "had finished";
  }
  return "";
}

std::string with_host(std::string rank, const std::string& host) {
  return host.empty() ? rank : rank + " on " + host;
}

}  // namespace

std::string describe_bare_rank(int32_t rank) { return fmt::format("rank {}", rank); }

std::string describe_cause(const RunFailure& failure, const DescribeRank& describe) {
  const char* verb = failure.kind == FailureKind::kLost     ? "was lost"
                     : failure.kind == FailureKind::kFailed ? "failed"
                                                            : "died";
  return one_line(fmt::format("{} {}: {}", with_host(describe(failure.rank), failure.host), verb,
                              failure.reason));
}

std::vector<std::string> describe_failure(const RunFailure& failure, const DescribeRank& describe) {
  std::vector<std::string> lines = {describe_cause(failure, describe)};
  for (const Survivor& survivor : failure.survivors) {
    lines.push_back(fmt::format("{} {}", with_host(describe(survivor.rank), survivor.host),
                                describe_survivor(survivor)));
  }
  return lines;
}

std::string describe_wait_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    const char* name = ::sigabbrev_np(number);
    if (name == nullptr) return fmt::format("killed by signal {}", number);
    return fmt::format("killed by signal {} (SIG{})", number, name);
  }
  return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
}

std::string describe_unfinished_exit(int wait_status) {
  const bool is_clean = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  return describe_wait_status(wait_status) + (is_clean ? " before it had finished" : "");
}

}  // namespace trireme
