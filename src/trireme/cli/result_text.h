// What a line that rank 0 publishes (exec/progress.h) means for stdout.
#pragma once

#include <string>

#include "trireme/cli/request.h"

namespace trireme {

// Of {"event":"result", ...}, which comes once at the end: with --json the object, of eval the loss
// for people, of a training with --predict what was predicted beside what was measured; else empty,
// as of every other line.
[[nodiscard]] std::string result_text(const RunRequest& request, const std::string& line);

}  // namespace trireme
