// `trireme inspect`: what is in an archive, for people and as JSON.
#pragma once

#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"
#include "trireme/import/archive.h"

namespace trireme {

// The text to print.
[[nodiscard]] Result<std::string> inspect(const InspectRequest& request);

// A line where parameters of the archive have no values; nothing where all have.
[[nodiscard]] std::string note_on_weights(const Archive& archive);

}  // namespace trireme
