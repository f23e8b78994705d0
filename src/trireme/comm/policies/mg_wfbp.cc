// `mg-wfbp`: wait-free backpropagation with merged gradients (Shi, Chu and Li, MG-WFBP, INFOCOM
// 2019): neighbours are joined where the start-up that this saves is longer than the wait that it
// costs (merging.h).
//
// The authors' code also joins every tensor of fewer than 8,192 elements to the next. That can make
// a step longer than wait-free backpropagation by their own cost model, so it is left out.

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/merging.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

class MgWfbp final : public Policy {
 public:
  explicit MgWfbp(const StageProblem& problem)
      : problem_(problem), groups_(merged_groups(problem, Merging::kAlsoWhatIsWorthWaiting)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return groups_.on_ready(problem_, ready);
  }
  std::vector<UnitKey> pick(const CommState& state) override { return first_alone(state); }

 private:
  StageProblem problem_;
  Groups groups_;
};

}  // namespace

std::unique_ptr<Policy> make_mg_wfbp(const StageProblem& problem,
                                     const PolicyOptions& /*options*/) {
  return std::make_unique<MgWfbp>(problem);
}

}  // namespace trireme
