#include "trireme/exec/worker_group.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

namespace trireme {

Status WorkerGroup::start(const WorkerCommand& command) {
  TRIREME_TRY(WorkerProcess process, WorkerProcess::start(command));
  workers_.push_back({.process = std::move(process),
                      .lines = LineSplitter(fmt::format("[rank {}] ", workers_.size()))});
  return Status();
}

void WorkerGroup::signal(int number) const {
  for (const Worker& worker : workers_) worker.process.signal(number);
}

bool WorkerGroup::is_running(int32_t rank) const {
  return workers_[static_cast<size_t>(rank)].process.is_running();
}

bool WorkerGroup::is_any_running() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.process.is_running(); });
}

void WorkerGroup::append_watched(std::vector<pollfd>& watched, Reading reading) const {
  for (const Worker& worker : workers_) {
    watched.push_back({.fd = worker.process.end_fd(), .events = POLLIN, .revents = 0});
    if (reading == Reading::kPaused) continue;
    watched.push_back({.fd = worker.process.output_fd(), .events = POLLIN, .revents = 0});
  }
}

void WorkerGroup::read_output() {
  for (Worker& worker : workers_) read_output_of(worker);
}

void WorkerGroup::read_output_of(Worker& worker) {
  std::array<char, 1 << 14> bytes;
  // Bounded, so that one worker cannot starve the others; a pipe that is not written to any more
  // holds less than this.
  for (int round = 0; round < 16 && worker.process.output_fd() >= 0; ++round) {
    const ssize_t got = ::read(worker.process.output_fd(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) worker.process.close_output();
    if (got <= 0) return;
    on_lines_(worker.lines.add(std::string_view(bytes.data(), static_cast<size_t>(got))));
  }
}

std::vector<WorkerGroup::Exit> WorkerGroup::reap() {
  std::vector<Exit> exits;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const std::optional<int> status = worker.process.try_reap();
    if (!status.has_value()) continue;
    read_output_of(worker);
    on_lines_(worker.lines.end());
    worker.process.close_output();
    exits.push_back({.rank = static_cast<int32_t>(i), .wait_status = *status});
  }
  return exits;
}

}  // namespace trireme
