// `trireme inspect`: what is in an archive, for people and as JSON.
#pragma once

#include <string>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"

namespace trireme {

// The text to print.
[[nodiscard]] Result<std::string> inspect(const InspectRequest& request);

}  // namespace trireme
