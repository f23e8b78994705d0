// policy_page(): docs/policies.md: the table of policies, and how long simulated steps take by each
// of them, for well-known models and for a pipeline, over a range of networks.
#pragma once

#include <string>

#include "trireme/base/result.h"

namespace trireme {

// For people who read a terminal: a line a policy.
[[nodiscard]] std::string policy_table();

// Markdown. It takes seconds, and is the same on every machine.
[[nodiscard]] Result<std::string> policy_page();

}  // namespace trireme
