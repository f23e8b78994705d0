#include "trireme/exec/supervisor.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trireme/exec/control_hub.h"
#include "trireme/exec/control_protocol.h"
#include "trireme/exec/hub_event_queue.h"
#include "trireme/exec/output_queue.h"
#include "trireme/exec/progress.h"
#include "trireme/exec/signal_reader.h"
#include "trireme/exec/stream_socket.h"
#include "trireme/exec/worker_group.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// How long the end of a rank's connection waits for the status of its process.
constexpr std::chrono::milliseconds kStatusTimeout(300);
// A killed process that is still there after this is stuck in the kernel; nobody can end it.
constexpr std::chrono::milliseconds kKillTimeout(700);
constexpr std::chrono::milliseconds kFlushTimeout(300);

Progress make_progress(const SupervisorOptions& options) {
  if (options.progress == ProgressOutput::kQuiet) return Progress(ProgressStyle::kQuiet, 0);
  winsize size{};
  if (::isatty(options.progress_fd) != 1) return Progress(ProgressStyle::kLines, 0);
  const bool is_known = ::ioctl(options.progress_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return Progress(ProgressStyle::kTerminal, is_known ? size.ws_col : 80);
}

class Supervision {
 public:
  explicit Supervision(SupervisorOptions options)
      : options_(std::move(options)),
        progress_(make_progress(options_)),
        workers_([this](const std::string& lines) { log(lines); }),
        statuses_(static_cast<size_t>(options_.num_workers)) {}

  Result<int> run();

 private:
  enum class Phase { kRunning, kLeaving, kAwaitingStatus, kEnding, kKilling };
  [[nodiscard]] Status start_workers(const std::string& token);
  [[nodiscard]] bool is_done() const;
  void poll_once();
  void hear_signals();
  void hear_hub();
  void hear(const PublishedLine& line);
  void hear(RunFailure failure);
  void hear(AllFinished all_finished);
  void reap_workers();
  void advance(Clock::time_point now);
  void enter(Phase phase, std::chrono::milliseconds timeout);
  void end_workers();
  void kill_workers();
  void pause_with_workers();
  void note_late_workers();
  void log(const std::string& lines);
  [[nodiscard]] int conclude();

  SupervisorOptions options_;
  SignalReader signals_;  // first: the hub's thread inherits what is blocked
  HubEventQueue events_;
  OutputQueue output_;
  Progress progress_;
  std::unique_ptr<ControlHub> hub_;
  WorkerGroup workers_;
  // Of the ranks that ended by themselves; those that were told to end have none.
  std::vector<std::optional<int>> statuses_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> phase_end_;
  bool has_finished_ = false;
  bool has_given_up_ = false;
  std::optional<RunFailure> failure_;
  int signal_ = 0;  // the first one
};

Result<int> Supervision::run() {
  const std::string token = make_control_token();
  HubOptions hub{.watch = options_.watch,
                 .bind_host = "127.0.0.1",
                 .token = token,
                 .describe_rank = options_.describe_rank};
  hub.watch.num_ranks = options_.num_workers;
  TRIREME_TRY(hub_, ControlHub::start(std::move(hub),
                                      [this](HubEvent event) { events_.push(std::move(event)); }));
  const Status started = start_workers(token);
  if (!started.ok()) {
    kill_workers();
    return started.error();  // their destructors wait for them
  }
  while (!is_done()) {
    poll_once();
    hear_signals();
    reap_workers();
    hear_hub();
    advance(Clock::now());
  }
  return conclude();
}

Status Supervision::start_workers(const std::string& token) {
  for (int32_t rank = 0; rank < options_.num_workers; ++rank) {
    WorkerCommand command{.path = options_.worker_path,
                          .arguments = options_.arguments,
                          .environment = options_.environment};
    const std::string size = std::to_string(options_.num_workers);
    const std::string index = std::to_string(rank);
    for (const std::string& entry :
         {"RANK=" + index, "LOCAL_RANK=" + index, "WORLD_SIZE=" + size, "LOCAL_WORLD_SIZE=" + size,
          "TRIREME_HUB=" + hub_->address(), "TRIREME_TOKEN=" + token,
          fmt::format("OMP_NUM_THREADS={}", options_.threads_per_worker),
          std::string("OMP_WAIT_POLICY=passive")}) {
      command.environment.push_back(entry);
    }
    TRIREME_TRY(workers_.start(command));
  }
  return Status();
}

bool Supervision::is_done() const {
  if (workers_.is_any_running()) return has_given_up_;
  if (failure_.has_value() || signal_ != 0) return true;
  // All have ended by themselves: the hub knows why, and its word is on the way.
  const bool are_all_clean =
      std::all_of(statuses_.begin(), statuses_.end(),
                  [](const std::optional<int>& status) { return status.value_or(0) == 0; });
  return has_finished_ && are_all_clean;
}

void Supervision::poll_once() {
  std::vector<pollfd> watched = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = events_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = output_.fd(), .events = POLLOUT, .revents = 0}};
  // Workers feel it when nobody reads what they print, as they would without a supervisor.
  const bool reads = !output_.is_full();
  workers_.append_watched(watched,
                          reads ? WorkerGroup::Reading::kOn : WorkerGroup::Reading::kPaused);
  const int timeout = phase_end_ ? milliseconds_until(*phase_end_, Clock::now()) : -1;
  if (::poll(watched.data(), watched.size(), timeout) <= 0) return;
  if (watched[2].revents != 0) output_.write_some();
  if (reads) workers_.read_output();
}

void Supervision::hear_signals() {
  while (const std::optional<int> number = signals_.next()) {
    if (*number == SIGPIPE) continue;
    if (*number == SIGTSTP) {
      pause_with_workers();
    } else if (signal_ != 0 || failure_.has_value()) {
      kill_workers();  // whoever asks twice does not want to wait
    } else {
      signal_ = *number;
      end_workers();
    }
  }
}

// Ctrl-Z stops the ranks as well, although they are in groups of their own.
void Supervision::pause_with_workers() {
  workers_.signal(SIGSTOP);
  ::raise(SIGSTOP);
  workers_.signal(SIGCONT);
}

void Supervision::hear_hub() {
  for (HubEvent& event : events_.take_all()) {
    std::visit([this](auto& each) { hear(std::move(each)); }, event);
  }
}

void Supervision::hear(const PublishedLine& line) {
  if (options_.on_published) options_.on_published(line);
  if (line.rank != 0 || output_.is_full()) return;  // what nobody reads must not pile up
  output_.add(options_.progress_fd, progress_.show(line.text, Clock::now()));
}

void Supervision::hear(RunFailure failure) {
  if (signal_ != 0 || failure_.has_value()) return;
  const bool lacks_status =
      failure.kind == FailureKind::kDisconnected && workers_.is_running(failure.rank);
  failure_ = std::move(failure);
  if (lacks_status) {
    enter(Phase::kAwaitingStatus, kStatusTimeout);
  } else {
    end_workers();
  }
}

void Supervision::hear(AllFinished /*all_finished*/) {
  has_finished_ = true;
  if (phase_ == Phase::kRunning) enter(Phase::kLeaving, options_.exit_timeout);
}

void Supervision::reap_workers() {
  for (const WorkerGroup::Exit& exit : workers_.reap()) {
    if (phase_ == Phase::kEnding || phase_ == Phase::kKilling) continue;
    statuses_[static_cast<size_t>(exit.rank)] = exit.wait_status;
    hub_->report_exit(exit.rank, exit.wait_status);
  }
}

void Supervision::enter(Phase phase, std::chrono::milliseconds timeout) {
  phase_ = phase;
  phase_end_ = Clock::now() + timeout;
}

void Supervision::end_workers() {
  workers_.signal(SIGTERM);
  enter(Phase::kEnding, options_.grace);
}

void Supervision::kill_workers() {
  workers_.signal(SIGKILL);
  enter(Phase::kKilling, kKillTimeout);
}

void Supervision::advance(Clock::time_point now) {
  const bool has_status = failure_.has_value() && !workers_.is_running(failure_->rank);
  if (phase_ == Phase::kAwaitingStatus && has_status) end_workers();
  if (!phase_end_.has_value() || now < *phase_end_) return;
  switch (phase_) {
    case Phase::kRunning:
      break;
    case Phase::kLeaving:
      note_late_workers();
      kill_workers();
      break;
    case Phase::kAwaitingStatus:
      end_workers();
      break;
    case Phase::kEnding:
      kill_workers();
      break;
    case Phase::kKilling:
      has_given_up_ = true;
      break;
  }
}

// Every rank has finished and said so: the run is good, only its processes are not.
void Supervision::note_late_workers() {
  for (int32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_.is_running(rank)) continue;
    log(fmt::format("{} had finished but did not exit within {:g} s, so it was killed\n",
                    options_.describe_rank(rank),
                    std::chrono::duration<double>(options_.exit_timeout).count()));
  }
}

void Supervision::log(const std::string& lines) {
  if (lines.empty()) return;
  output_.add(options_.progress_fd, progress_.hide());
  output_.add(options_.log_fd, lines);
  output_.add(options_.progress_fd, progress_.unhide());
}

int Supervision::conclude() {
  output_.add(options_.progress_fd, progress_.end());
  int exit_status = 0;
  if (signal_ != 0) {
    exit_status = 128 + signal_;
  } else if (failure_.has_value()) {
    exit_status = 1;
    const std::optional<int> status = statuses_[static_cast<size_t>(failure_->rank)];
    // The hub may have decided before the process had ended.
    if (failure_->kind == FailureKind::kDisconnected && status.has_value()) {
      failure_->reason = describe_unfinished_exit(*status);
    }
    for (const std::string& line : describe_failure(*failure_, options_.describe_rank)) {
      output_.add(options_.log_fd, line + "\n");
    }
  }
  output_.flush_for(kFlushTimeout);
  return exit_status;
}

}  // namespace

Result<int> supervise(SupervisorOptions options) {
  if (options.num_workers < 1) {
    return Error{fmt::format("a run needs at least 1 worker, not {}", options.num_workers)};
  }
  Supervision supervision(std::move(options));
  return supervision.run();
}

}  // namespace trireme
