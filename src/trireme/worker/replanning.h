// Replanning: a training that measures its links and passes, and changes its warm-ups where they
// have changed (cli/replanner.h).
//
//   step t      the ranks tell each other what they have measured: a sum of a few hundred bytes, in
//               which each has a place of its own, and which travels while the step computes
//   step t+1    all have it, and decide alike; where a link has drifted each starts the simulator
//               on another thread
//   step t+2    all have the same answer: other warm-ups from step t+3 on, the first step whose
//               schedule is not settled yet
//
// Ranks walk through the steps alike, so none waits for another one but in the sum, a step later.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/replanner.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/pass_timer.h"
#include "trireme/exec/transport.h"

namespace trireme {

class Replanning {
 public:
  // How many steps lie between two exchanges.
  static constexpr int64_t kPeriod = 4;

  // All outlive it; `kernels` are those of the training. All ranks make one; null where no link is
  // measured: of one rank, and over other transports than the direct one.
  static Result<std::unique_ptr<Replanning>> make(const RunSetup& setup, int32_t rank,
                                                  Kernels& kernels, Transport& transport);

  // The kernels, timed.
  [[nodiscard]] Kernels& kernels() { return timer_; }

  // Before each step of the training, in their order. A sentence for the user where something has
  // changed, else empty.
  Result<std::string> begin_step(int64_t step);
  // Once after the last step.
  Status finish();

  // Of a step up to the one after that which has begun. Nothing where they are the plan's, since
  // the schedule cannot have others or the user does not let it.
  [[nodiscard]] std::optional<ExtraWarmUps> extra_warm_ups(int64_t step) const;
  // That the first stage runs ahead of the step after this one.
  [[nodiscard]] int32_t num_forwards_ahead(int64_t step) const;
  // As they were last told; empty before.
  [[nodiscard]] std::vector<RankLink> links() const { return measured_links(setup_.plan, told_); }
  [[nodiscard]] std::string links_text() const { return trireme::links_text(setup_.plan, told_); }

 private:
  using Found = Result<Replanner::Change>;

  Replanning(const RunSetup& setup, int32_t rank, Kernels& kernels, Transport& transport);
  Status tell();
  Status hear(int64_t step);
  std::string take_answer(int64_t step);
  [[nodiscard]] const Replanner::Change& change(int64_t step) const;

  const RunSetup& setup_;
  const int32_t rank_;
  Transport& transport_;
  PassTimer timer_;
  Replanner replanner_;
  bool can_change_ = false;
  CommunicatorId all_;
  std::vector<RankMeasurement> sum_;  // by rank; the transport has it while a ticket is there
  std::optional<Ticket> ticket_;
  std::vector<RankMeasurement> told_;
  std::map<int64_t, Replanner::Change> changes_;  // by the first step that has them
  std::future<Found> answer_;                     // last: its thread uses the members above
};

}  // namespace trireme
