// WorkerGroup: the worker processes of a run, one a rank, and what they print as lines.
//
// The owner polls the descriptors that append_watched() names, then calls read_output() and
// reap(). Nothing blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "trireme/base/result.h"
#include "trireme/exec/line_splitter.h"
#include "trireme/exec/worker_process.h"

namespace trireme {

class WorkerGroup {
 public:
  // `on_lines` gets whole lines, each with its rank and a newline: "[rank 2] text\n".
  explicit WorkerGroup(std::function<void(const std::string&)> on_lines)
      : on_lines_(std::move(on_lines)) {}

  // Starts the next rank.
  Status start(const WorkerCommand& command);
  // To all that are running.
  void signal(int number) const;
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(workers_.size()); }
  // REQUIRES: 0 <= rank < size().
  [[nodiscard]] bool is_running(int32_t rank) const;
  [[nodiscard]] bool is_any_running() const;

  enum class Reading { kOn, kPaused };
  // What poll() has to watch; paused, workers that print much wait until it is read again.
  void append_watched(std::vector<pollfd>& watched, Reading reading) const;
  // Takes what they have printed since.
  void read_output();

  struct Exit {
    int32_t rank = -1;
    int wait_status = 0;
  };
  // Who has ended since, each once. All of its lines have been handed on before.
  [[nodiscard]] std::vector<Exit> reap();

 private:
  struct Worker {
    WorkerProcess process;
    LineSplitter lines;
  };

  void read_output_of(Worker& worker);

  std::function<void(const std::string&)> on_lines_;
  std::vector<Worker> workers_;  // by rank
};

}  // namespace trireme
