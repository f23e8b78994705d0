// Launchers: how a worker finds its place in the run, from the variables of what started it.
//
// The table in launchers.cc has one row a launcher: the names of its variables, and how the first
// host is found. The first row whose rank variable is set is the launcher:
//
//   trireme train > torchrun > Open MPI > MPICH > SLURM > Kubernetes
//
// so that a launcher inside an allocation of SLURM counts, and not the allocation. MASTER_ADDR and
// MASTER_PORT, where they are set, are the place at which the ranks meet, whatever the launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/result.h"

namespace trireme {

// Looks a name up, as std::getenv.
using VariableLookup = std::function<const char*(const char*)>;

struct RankEnvironment {
  std::string launcher;  // "Open MPI"
  int32_t rank = 0;
  int32_t num_processes = 1;
  // Of `trireme train`:
  std::string hub;  // host:port; empty under other launchers
  std::string token;
  // Of other launchers: where the ranks meet.
  std::string master_host;
  uint16_t master_port = 0;
  // torchrun's agent has the port, and tells there what rank 0 has stored; else rank 0 has it.
  bool agent_serves_store = false;
  // What two jobs, or two attempts of one job, do not have in common.
  std::string job;
  // Kubernetes: the name is known only once rank 0's pod has started.
  bool name_may_come = false;

  [[nodiscard]] bool is_supervised() const { return !hub.empty(); }
  [[nodiscard]] bool owns_hub() const { return !is_supervised() && rank == 0; }
};

// Errors: a variable is missing, malformed or contradicts another one.
[[nodiscard]] Result<RankEnvironment> read_rank_environment(const VariableLookup& variable);

// Counted over the ranks of its host, as far as the launcher says; 0 when unknown.
[[nodiscard]] int32_t rank_in_host(const VariableLookup& variable);

// Whether this rank is the first of its host, as far as the launcher says; true when unknown.
[[nodiscard]] bool is_first_of_host(const VariableLookup& variable);

// For --help: one line a launcher.
[[nodiscard]] std::string launcher_help();

}  // namespace trireme
