// Executor: runs one rank's list of a verified Schedule over its Kernels and its Transport.
//
//   Executor executor(rank, kernels, transport);
//   executor.join(schedule)           once: the communicators that the schedules of this run use
//   executor.run_step(schedule)       once a step
//
// Receives are posted `look_ahead` receives ahead of the one that is waited for, sends are posted
// and collected when the step ends. Tags separate kind, micro-batch, chunk and part, so transfers
// that are in flight together cannot be mistaken for each other.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/kernels.h"
#include "trireme/exec/transport.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

class Executor {
 public:
  Executor(int32_t rank, Kernels& kernels, Transport& transport);

  // Joins "world" (all ranks), "dp.<stage>" (the replicas of this rank's stage, when dp > 1) and
  // "tied.<group>.<replica>" for each tied group that this rank's stage holds.
  Status join(const Schedule& schedule);

  // REQUIRES: verified, of the same shape (stages, replicas, tied groups) as the one joined.
  // On an error the step is lost: other ranks may wait for this one, so the caller ends the run.
  Status run_step(const Schedule& schedule);

  // What the rank is doing, for people: "RA3 (activations of micro-batch 3 from rank 0)", or
  // "between steps". Any thread.
  [[nodiscard]] std::string current_action() const;

 private:
  int32_t rank_;
  Kernels& kernels_;
  Transport& transport_;
  CommunicatorId world_;
  CommunicatorId replicas_;
  std::vector<CommunicatorId> tied_;  // by tied group; invalid where this rank is no member
  mutable std::mutex mutex_;
  std::string current_;  // guarded by mutex_
};

}  // namespace trireme
