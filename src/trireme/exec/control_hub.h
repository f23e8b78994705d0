// ControlHub: serves the key-value store of a run and hears its ranks (control_protocol.h).
//
// It lives inside `trireme train`, or inside rank 0 when something else started the ranks; rank
// 0's own client then connects to it like the others, and rank 0 keeps it until AllFinished or a
// RunFailure has come, because its end is a loss for every rank that has not finished. One thread
// of its own does everything. The first rank that is lost or fails ends the run: the hub tells all
// that live, asks the others what they are doing, and hands one RunFailure to its owner
// (run_watch.h has the rules).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/run_failure.h"
#include "trireme/exec/run_watch.h"
#include "trireme/exec/wake_event.h"

namespace trireme {

struct PublishedLine {
  int32_t rank = -1;
  std::string text;
};
struct AllFinished {};
using HubEvent = std::variant<PublishedLine, RunFailure, AllFinished>;

struct HubOptions {
  RunWatchOptions watch;  // num_ranks and all time-outs
  std::string bind_host = "127.0.0.1";
  uint16_t port = 0;                                // 0: the kernel chooses
  std::string token;                                // make_control_token()
  DescribeRank describe_rank = describe_bare_rank;  // for what the ranks are told
  // What a person who waits should know: ranks that have not come (RunWatchOptions::notice_after),
  // and who else connected. One sentence; on the hub's thread.
  std::function<void(const std::string&)> on_notice;
};

class ControlHub {
 public:
  // `on_event` is called on the hub's thread and must not block: a RunFailure or an AllFinished
  // comes once, a RunFailure possibly after AllFinished (report_exit).
  [[nodiscard]] static Result<std::unique_ptr<ControlHub>> start(
      HubOptions options, std::function<void(HubEvent)> on_event);
  // Ends all connections and gives the port back.
  ~ControlHub();
  ControlHub(const ControlHub&) = delete;
  ControlHub& operator=(const ControlHub&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  // "host:port" with the host it was bound to.
  [[nodiscard]] std::string address() const;

  // The rank's process ended with this waitpid status. Any thread. The hub reads what the process
  // still sent before it judges.
  void report_exit(int32_t rank, int wait_status);

 private:
  struct ExitReport {
    int32_t rank = -1;
    int wait_status = 0;
  };
  class Loop;

  ControlHub(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}
  [[nodiscard]] std::vector<ExitReport> take_exit_reports();

  std::string host_;
  uint16_t port_;
  WakeEvent wake_;
  std::mutex mutex_;
  std::vector<ExitReport> exit_reports_;  // guarded by mutex_
  std::jthread thread_;                   // last: it uses the members above
};

}  // namespace trireme
