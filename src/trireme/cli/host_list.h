// SLURM's compressed lists of hosts: `node[01-03,7],rack[1-2]n[4-5],other`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

// The hosts in their order: node01, node02, node03, node7, rack1n4, rack1n5, rack2n4, ... The error
// says why the text is no such list, or that it has more than 65,536 hosts.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(std::string_view text);

}  // namespace trireme
