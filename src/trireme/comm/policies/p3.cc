// `p3`: slices by priority (Jayarajan et al., Priority-based Parameter Propagation, MLSys 2019):
// every gradient is cut into slices of a fixed size, and whenever the link is free the ready slice
// of the layer that the next forward needs first goes next. A slice is never interrupted.
//
// A sender does not wait for an answer before the next slice. So as many are on their way as hide a
// start-up, and one more.
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
      : problem_(problem),
        slice_bytes_(options.chunk_bytes),
        startup_bytes_(
            bytes_in(unit_cost(Operation::kAllReduce, 0, problem.route).startup, problem.route)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return cut(problem_, ready, slice_bytes_, priority_of(ready.gradient));
  }
  std::vector<UnitKey> pick(const CommState& state) override {
    const auto in_flight = static_cast<double>(state.bytes_in_flight);
    if (in_flight >= startup_bytes_ + static_cast<double>(slice_bytes_)) return {};
    return {state.waiting.begin()->first};
  }

 private:
  StageProblem problem_;
  int64_t slice_bytes_;
  double startup_bytes_;
};

}  // namespace

std::unique_ptr<Policy> make_p3(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<P3>(problem, options);
}

}  // namespace trireme
