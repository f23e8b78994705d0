// How many files the system lets this process, and those it starts, have open.
#pragma once

#include <cstdint>

#include "trireme/base/result.h"

namespace trireme {

// Of a supervisor: a pipe, a process and a connection a worker; of one of the ranks, which meet in
// groups of their stage and of their replica, less. Measured, with room for the files of a run.
constexpr int64_t files_of_ranks(int64_t num_processes) { return 16 + 3 * num_processes; }

// Raises the soft limit where that is enough. Error: even the hard limit is lower than `num_files`.
[[nodiscard]] Status allow_open_files(int64_t num_files);

}  // namespace trireme
