// policy_page(): the page about the policies, docs/policies.md: the table, and how long simulated
// steps take by each of them, for well-known models over a range of networks.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/comm/policies.h"
#include "trireme/comm/workload.h"

namespace trireme {

// The policies for people who read a terminal.
[[nodiscard]] std::string policy_table();

// Markdown; takes seconds.
[[nodiscard]] Result<std::string> policy_page();

// How many times as long as a policy's a step takes that does everything `end`.
struct Speedups {
  std::string policy;
  std::vector<double> by_ratio;
};
// Of what takes `ratio` times as long on the link as it computes; `workload_at` makes it.
[[nodiscard]] Result<std::vector<Speedups>> speedups(const std::vector<double>& ratios,
                                                     Result<Workload> (*workload_at)(double ratio,
                                                                                     size_t model),
                                                     size_t model);

}  // namespace trireme
