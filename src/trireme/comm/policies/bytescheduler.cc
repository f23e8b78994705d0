// `bytescheduler`: partitions by priority, with a credit (Peng et al., A Generic Communication
// Scheduler for Distributed DNN Training Acceleration, SOSP 2019). Partitions of a gradient wait in
// the order of its layer. The first of them starts while there is credit left, and takes its size
// of it; so the last to start may overdraw it, and no partition overtakes the first. A large credit
// keeps the link busy from partition to partition, a small one lets urgent ones pass sooner.
//
// Sizes are bytes here, parameters in the authors' code; partition and credit are theirs for
// all-reduce, of 4 bytes a parameter. Their tuner is tuner.h.

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

class ByteScheduler final : public Policy {
 public:
  ByteScheduler(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), options_(options) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return cut(problem_, ready, options_.chunk_bytes, priority_of(ready.gradient));
  }
  std::vector<UnitKey> pick(const CommState& state) override {
    if (options_.credit_bytes - state.bytes_in_flight <= 0) return {};
    return {state.waiting.begin()->first};
  }

 private:
  StageProblem problem_;
  PolicyOptions options_;
};

}  // namespace

std::unique_ptr<Policy> make_bytescheduler(const StageProblem& problem,
                                           const PolicyOptions& options) {
  return std::make_unique<ByteScheduler>(problem, options);
}

}  // namespace trireme
