// WorkerProcess: one child process in its own process group, that cannot outlive its parent.
//
// The kernel kills it when the thread that started it ends (PR_SET_PDEATHSIG), so whoever starts
// workers stays until they are gone. Its standard input is empty; its standard output and error
// are one pipe. What it leaves in its process group is killed when it is reaped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

struct WorkerCommand {
  std::string path;                      // of the program; not searched for
  std::vector<std::string> arguments;    // after the program's name
  std::vector<std::string> environment;  // "NAME=value", in place of or besides the parent's
};

class WorkerProcess {
 public:
  // Error when the program cannot be run: "cannot start /opt/x: No such file or directory".
  [[nodiscard]] static Result<WorkerProcess> start(const WorkerCommand& command);
  // REQUIRES: reaped, or moved from; a worker that is left running is killed and waited for.
  ~WorkerProcess();
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) = delete;

  [[nodiscard]] bool is_running() const { return pid_ > 0; }
  // Readable in poll() when the process has ended; -1 when it has been reaped.
  [[nodiscard]] int end_fd() const { return end_.get(); }
  // The pipe with what it writes, non-blocking; -1 when closed.
  [[nodiscard]] int output_fd() const { return output_.get(); }
  void close_output() { output_.reset(); }

  // To the process and its group. Nothing happens once it has been reaped.
  void signal(int number) const;
  // The status of waitpid once the process has ended, and never again.
  [[nodiscard]] std::optional<int> try_reap();

 private:
  WorkerProcess(pid_t pid, FileDescriptor end, FileDescriptor output)
      : pid_(pid), end_(std::move(end)), output_(std::move(output)) {}

  pid_t pid_ = -1;
  FileDescriptor end_;     // a pidfd
  FileDescriptor output_;  // the pipe's reading end
};

}  // namespace trireme
