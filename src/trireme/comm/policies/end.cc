// `end`: nothing travels before the whole backward is over, and nothing else happens then: what
// PipeDream-2BW does (Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021)
// and plain data parallelism did before wait-free backpropagation.
//
//   F F B B |== sums ==| F F B B |== sums ==|

#include <utility>

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

class End final : public Policy {
 public:
  End(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), buckets_(buckets(problem, options.bucket_bytes)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    for (Unit& unit : buckets_.on_ready(problem_, ready)) kept_.push_back(std::move(unit));
    if (++num_ready_ < problem_.gradients.size()) return {};
    num_ready_ = 0;
    return std::exchange(kept_, {});
  }
  std::vector<UnitKey> pick(const CommState& state) override { return first_alone(state); }

 private:
  StageProblem problem_;
  Groups buckets_;
  std::vector<Unit> kept_;
  size_t num_ready_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_end(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<End>(problem, options);
}

}  // namespace trireme
