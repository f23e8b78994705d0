// LoadProcesses: copies of this process, started with its arguments, that keep the machine as busy
// as the other ranks of a run would while this one measures.
#pragma once

#include <cstdint>
#include <vector>

#include <sys/types.h>

#include "trireme/base/result.h"

namespace trireme {

class LoadProcesses {
 public:
  // A copy finds kLoadVariable among its variables: which copy it is, from 1.
  static constexpr const char* kLoadVariable = "TRIREME_PROFILE_LOAD";

  [[nodiscard]] static Result<LoadProcesses> start(int32_t count);
  // Ends them.
  ~LoadProcesses();
  LoadProcesses(LoadProcesses&& other) noexcept : pids_(std::move(other.pids_)) {
    other.pids_.clear();
  }
  LoadProcesses& operator=(LoadProcesses&&) = delete;

  // In a copy: it ends when the process that started it does.
  static void follow_parent();

 private:
  LoadProcesses() = default;
  std::vector<pid_t> pids_;
};

}  // namespace trireme
