// `trireme profile`: measures the blocks of a model in rounds until its time is used up.
//
// A round runs a step of each kind and size (block_timer.h), so that a drift of the machine meets
// all of them. What the time did not suffice for comes from the analytic model, and says so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"

namespace trireme {

struct ProfileRun {
  // Runs the same steps until the process is ended, for another one that measures beside it.
  bool is_load = false;
  int32_t place = 0;  // among the processes that measure at once
  // A line that takes the place of the one before.
  std::function<void(const std::string&)> show_progress;
};

struct ProfileOutcome {
  std::string failure;  // what went wrong while it measured; empty: nothing
  std::string summary;  // for people
  std::string text;     // the profile, where no file is named; else it is written
};

// Error: the request or the model is wrong, and nothing was run.
[[nodiscard]] Result<ProfileOutcome> run_profile(ProfileRequest request, const ProfileRun& run);

}  // namespace trireme
