// `p3`: slices by priority (Jayarajan et al., Priority-based Parameter Propagation, MLSys 2019):
// every gradient is cut into slices of a fixed size, and whenever the link is free the ready slice
// of the layer that the next forward needs first goes next. A slice is never interrupted.
//
// Published for parameter servers, which answer a push with the new values; here a slice is an
// all-reduce. The paper's best slice is 50,000 parameters, the code's default 40,000.

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

class P3 final : public Policy {
 public:
  P3(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), slice_bytes_(options.chunk_bytes) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return cut(problem_, ready, slice_bytes_, priority_of(ready.gradient));
  }
  std::vector<UnitKey> pick(const CommState& state) override { return first_alone(state); }

 private:
  StageProblem problem_;
  int64_t slice_bytes_;
};

}  // namespace

std::unique_ptr<Policy> make_p3(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<P3>(problem, options);
}

}  // namespace trireme
