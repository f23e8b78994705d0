// `asc-wfbp`: several all-reduces at once (Shi, Chu and Li, Exploiting Simultaneous Communications
// to Accelerate Data Parallel Distributed Deep Learning, INFOCOM 2021): what has not started when
// the next gradient is ready is joined to it, nothing waits, and two all-reduces are in flight, so
// that the start-up of one hides behind the bytes of the other.
//
// The paper is closed; this follows the group's later code, whose walk takes one all-reduce at a
// time, and that two of them share a link equally is an assumption.

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/merging.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

constexpr int32_t kStreams = 2;

class AscWfbp final : public Policy {
 public:
  explicit AscWfbp(const StageProblem& problem)
      : problem_(problem), groups_(merged_groups(problem, Merging::kWhatHasNotStarted)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return groups_.on_ready(problem_, ready);
  }
  std::vector<UnitKey> pick(const CommState& state) override {
    if (state.num_in_flight >= kStreams) return {};
    return {state.waiting.begin()->first};
  }

 private:
  StageProblem problem_;
  Groups groups_;
};

}  // namespace

std::unique_ptr<Policy> make_asc_wfbp(const StageProblem& problem,
                                      const PolicyOptions& /*options*/) {
  return std::make_unique<AscWfbp>(problem);
}

}  // namespace trireme
