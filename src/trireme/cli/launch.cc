#include "trireme/cli/launch.h"

#include <array>
#include <chrono>
#include <cstdio>

#include <unistd.h>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/open_files.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/result_text.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/supervisor.h"
#include "trireme/trace/timeline_files.h"

namespace trireme {

std::string worker_beside_this_program() {
  std::array<char, 4096> path = {};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size <= 0) return "./trireme-worker";
  const std::string self(path.data(), static_cast<size_t>(size));
  return self.substr(0, self.rfind('/') + 1) + "trireme-worker";
}

namespace {

// Makes the timeline of a run that failed of what its ranks have left. A sentence about it.
std::string save_last_steps(const std::string& path) {
  Result<Timeline> timeline = join_part_files(path);
  if (!timeline.ok()) return one_line(timeline.error().message);
  if (const Status written = write_timeline(path, timeline.value()); !written.ok()) {
    return one_line(written.error().message);
  }
  remove_part_files(path);
  return fmt::format("what each rank did last is in {}; see trireme report", path);
}

}  // namespace

Result<LaunchOutcome> launch(const RunRequest& request, const std::vector<std::string>& arguments,
                             const std::string& worker_path) {
  TRIREME_TRY(check_outputs(request));
  TRIREME_TRY(RunSetup setup, make_run_setup(request));
  SupervisorOptions options;
  options.worker_path = worker_path;
  options.arguments = arguments;
  options.num_workers = request.workers.value_or(setup.num_ranks());
  TRIREME_TRY(allow_open_files(files_of_ranks(options.num_workers)));
  options.threads_per_worker = request.threads;
  options.watch.connect_timeout = std::chrono::seconds(request.rendezvous_timeout_s);
  options.watch.silence_timeout = std::chrono::seconds(request.silence_timeout_s);
  options.progress = request.is_quiet ? ProgressOutput::kQuiet : ProgressOutput::kShown;
  // A result on stdout must stay one that can be piped.
  if (request.has_result()) options.progress_fd = 2;
  const int32_t num_workers = options.num_workers;
  const int32_t pp = setup.plan.pp;
  const int32_t dp = setup.plan.dp;
  options.describe_rank = [=](int32_t rank) {
    if (num_workers != pp * dp) return fmt::format("the worker with all {} ranks", pp * dp);
    return fmt::format("rank {} (stage {}, replica {})", rank, rank % pp, rank / pp);
  };
  for (const std::string& note : setup.notes()) fmt::print(stderr, "trireme: {}\n", note);
  std::string result;
  options.on_published = [&](const PublishedLine& line) {
    if (line.rank == 0) result += result_text(request, line.text);
  };
  if (!request.timeline.empty()) remove_part_files(request.timeline);
  TRIREME_TRY(int status, supervise(std::move(options)));
  if (status != 0 && !request.timeline.empty()) {
    fmt::print(stderr, "trireme: {}\n", save_last_steps(request.timeline));
  }
  if (status != 0) return LaunchOutcome{.exit_code = status, .result = ""};
  return LaunchOutcome{.exit_code = 0, .result = std::move(result)};
}

}  // namespace trireme
