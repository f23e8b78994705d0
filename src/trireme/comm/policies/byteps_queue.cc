// `byteps-queue`: the queue of BytePS (Jiang et al., A Unified Architecture for Accelerating
// Distributed DNN Training, OSDI 2020). Like `bytescheduler`, but the credit is never overdrawn:
// what does not fit is passed over, and the first partition that fits starts. In the authors' code
// the credit is off unless it is asked for; here it is four partitions.

#include <algorithm>

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

class BytePsQueue final : public Policy {
 public:
  BytePsQueue(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem), options_(options) {
    // A partition that exceeds the whole credit would wait for ever.
    options_.credit_bytes = std::max(options_.credit_bytes, options_.chunk_bytes);
  }

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    return cut(problem_, ready, options_.chunk_bytes, priority_of(ready.gradient));
  }
  std::vector<UnitKey> pick(const CommState& state) override {
    const int64_t credit = options_.credit_bytes - state.bytes_in_flight;
    for (const auto& [key, unit] : state.waiting) {
      if (bytes_of(unit) <= credit) return {key};
    }
    return {};
  }

 private:
  StageProblem problem_;
  PolicyOptions options_;
};

}  // namespace

std::unique_ptr<Policy> make_byteps_queue(const StageProblem& problem,
                                          const PolicyOptions& options) {
  return std::make_unique<BytePsQueue>(problem, options);
}

}  // namespace trireme
