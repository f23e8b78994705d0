// Refuses before a run what would fail at its end: files that cannot be written.
#pragma once

#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"

namespace trireme {

// Where `path` is to be written: in place, or as a new file that takes its name at the end.
enum class WriteKind { kInPlace, kReplaced };

// Error when the folder of `path` is missing or cannot be written to, or `path` is a folder.
// Creates, opens and truncates nothing. `option` is named in the message: "--metrics".
[[nodiscard]] Status check_writable(const std::string& option, const std::string& path,
                                    WriteKind kind);

// All output files of the request. Of the rank that writes, and of `trireme train`.
[[nodiscard]] Status check_outputs(const RunRequest& request);

}  // namespace trireme
