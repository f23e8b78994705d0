// `trireme train` and `trireme eval`: starts one trireme-worker a rank on this machine and stays
// until they end.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"

namespace trireme {

// The exit status. Errors: the request, the model or the plan is wrong, or nothing could be
// started; no rank has run then. `arguments` are handed to the workers as they are.
struct LaunchOutcome {
  int exit_code = 0;
  std::string result;  // for stdout: of eval the loss, with --json one JSON object; else empty
};
[[nodiscard]] Result<LaunchOutcome> launch(const RunRequest& request,
                                           const std::vector<std::string>& arguments,
                                           const std::string& worker_path);

// "trireme-worker" in the folder of this program.
[[nodiscard]] std::string worker_beside_this_program();

}  // namespace trireme
