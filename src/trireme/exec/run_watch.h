// RunWatch: decides when a run has failed, which rank is the first cause, and when it is complete.
//
// A plain value without threads or sockets; time is an argument. A rank goes
//
//   absent -> connected -> finished                   and the run
//      |          |------> failed  (said so)            running -> settling -> asking -> decided
//      `----------`------> lost    (ended or silent)                `--------->'
//
// A killed rank makes its neighbours fail within milliseconds, so their word may be read before the
// end of the killed rank's connection. A failure of unknown origin therefore settles for a moment,
// in which a rank that is lost, or that failed on its own account, takes its place as the cause.
// Then all that live are told (`Announcement`), and all but the cause are asked what they are
// doing; the failure is decided when they have answered or the time for it is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_protocol.h"
#include "trireme/exec/run_failure.h"

namespace trireme {

using TimePoint = std::chrono::steady_clock::time_point;

struct RunWatchOptions {
  int32_t num_ranks = 1;
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);  // from the start
  std::chrono::milliseconds silence_timeout = std::chrono::seconds(30);
  std::chrono::milliseconds settle_time = std::chrono::milliseconds(150);
  std::chrono::milliseconds where_timeout = std::chrono::seconds(2);
  // When to say whom the run waits for: after this time, then every 30 s. 0: never.
  std::chrono::milliseconds notice_after = std::chrono::milliseconds(0);
};

class RunWatch {
 public:
  RunWatch(RunWatchOptions options, TimePoint now);

  // A rank introduces itself with whatever number; the error is for that rank.
  Status admit(int64_t rank, TimePoint now);
  // REQUIRES below: an admitted rank, except for exited().
  void is_on(int32_t rank, std::string host);
  void heard(int32_t rank, TimePoint now);
  void finished(int32_t rank);
  void failed(int32_t rank, std::string message, FailureOrigin origin, TimePoint now);
  void answered(int32_t rank, std::string where);
  void connection_ended(int32_t rank, TimePoint now);
  // The rank's process ended, as waitpid tells it. Whatever it sent has been handed in before.
  void exited(int32_t rank, int wait_status, TimePoint now);
  // Nothing could be heard until now because this process did not run: forgives the silence.
  void excuse_silence(TimePoint now);
  // Looks at the clock. Call it after each batch of the above and at next_deadline().
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;

  // What is to be told, once each, in this order.
  struct Announcement {
    RunFailure cause;
    std::vector<int32_t> to;
  };
  [[nodiscard]] std::optional<Announcement> take_announcement();
  [[nodiscard]] std::optional<RunFailure> take_failure();
  [[nodiscard]] bool take_all_finished();
  // The ranks that have not come, when it is time to say so.
  [[nodiscard]] std::optional<std::vector<int32_t>> take_absent(TimePoint now);

 private:
  enum class RankState { kAbsent, kConnected, kFinished, kFailed, kLost };
  struct RankRecord {
    RankState state = RankState::kAbsent;
    bool is_connected = false;
    TimePoint last_heard;
    std::optional<std::string> where;
    std::string host;
  };
  enum class Phase { kRunning, kSettling, kAsking, kDecided };

  void lose(int32_t rank, FailureKind kind, std::string reason);
  void begin_asking(TimePoint now);
  void decide();
  // Of a rank, when the ranks are on several hosts.
  [[nodiscard]] std::string host_to_name(int32_t rank) const;
  [[nodiscard]] RankRecord& record(int32_t rank);
  [[nodiscard]] Survivor survivor(int32_t rank) const;

  RunWatchOptions options_;
  TimePoint start_;
  TimePoint next_notice_;
  std::vector<RankRecord> ranks_;
  Phase phase_ = Phase::kRunning;
  TimePoint phase_end_;
  bool cause_is_certain_ = false;
  RunFailure failure_;
  std::vector<int32_t> asked_;
  bool has_announcement_ = false;
  bool has_failure_ = false;
  bool has_all_finished_ = false;
};

}  // namespace trireme
