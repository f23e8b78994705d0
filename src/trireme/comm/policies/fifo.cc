// `fifo`: gradients travel as soon as they are ready, joined into buckets, one bucket after the
// other. With a bucket a gradient this is wait-free backpropagation, `wfbp` (Zhang et al.,
// Poseidon, USENIX ATC 2017); with buckets of some MB, what frameworks do (Li et al., PyTorch
// Distributed, VLDB 2020).

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

class Fifo final : public Policy {
 public:
  Fifo(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), buckets_(buckets(problem, options.bucket_bytes)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return buckets_.on_ready(problem_, ready);
  }
  std::vector<UnitKey> pick(const CommState& state) override { return first_alone(state); }

 private:
  StageProblem problem_;
  Groups buckets_;
};

}  // namespace

std::unique_ptr<Policy> make_fifo(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<Fifo>(problem, options);
}

}  // namespace trireme
