// supervise(): starts the ranks of a run as processes of this machine and stays until all are gone.
//
// It serves the control channel (control_hub.h), shows the progress that rank 0 publishes
// (progress.h), passes on what the workers print as "[rank 2] ..." lines, and ends everything at
// the first failure, at SIGINT, SIGTERM or SIGHUP. Its last lines then say why (run_failure.h).
//
// Phases:
//
//   running --all finished--> leaving ----all exited----> status 0
//      |                         `--- late: note, kill
//      |--failure or signal--> ending (SIGTERM) --grace--> killing (SIGKILL) --> status 1 or 128 +
//      n
//
// A worker gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TRIREME_HUB (host:port),
// TRIREME_TOKEN, OMP_NUM_THREADS, OMP_WAIT_POLICY=passive, and the rest of this process's
// environment. It connects a ControlClient with them, publishes, and calls finish() or fail().
// A worker that exits without either counts as dead, whatever its status.
//
// Nothing blocks: not a terminal that is held (Ctrl-S), not a pipe that nobody reads. From a
// failure to the return of supervise() it takes less than 5 s with the defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_hub.h"
#include "trireme/exec/run_failure.h"
#include "trireme/exec/run_watch.h"

namespace trireme {

enum class ProgressOutput { kShown, kQuiet };

struct SupervisorOptions {
  std::string worker_path;               // of the program, with a slash: it is not searched for
  std::vector<std::string> arguments;    // the same for every rank
  std::vector<std::string> environment;  // more "NAME=value" for every rank
  int32_t num_workers = 1;
  int32_t threads_per_worker = 1;
  DescribeRank describe_rank = describe_bare_rank;
  ProgressOutput progress = ProgressOutput::kShown;
  // Each line that a rank publishes, before it is shown. Called while supervise() runs.
  std::function<void(const PublishedLine&)> on_published;
  int progress_fd = 1;
  int log_fd = 2;         // the workers' lines and the last lines of a failed run
  RunWatchOptions watch;  // time-outs; num_ranks is set here
  std::chrono::milliseconds grace = std::chrono::seconds(2);         // SIGTERM to SIGKILL
  std::chrono::milliseconds exit_timeout = std::chrono::seconds(4);  // all finished to all exited
};

// The exit status for the whole run: 0, 1, or 129, 130, 143 after SIGHUP, SIGINT, SIGTERM. Error
// when it could not be started, in one sentence; no process is left then.
//
// Blocks the signals that it handles in the calling thread while it runs; call it before other
// threads exist, or block them there too. One call at a time in a process.
[[nodiscard]] Result<int> supervise(SupervisorOptions options);

}  // namespace trireme
