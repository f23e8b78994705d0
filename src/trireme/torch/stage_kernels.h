// StageKernels: what a rank computes for its stage, over libtorch. Torch-free to include.
//
//   kernels->begin_step(step);         sizes, samples, learning rate
//   executor.run_step(schedule);       calls compute, message, complete
//   kernels->outcome();                loss, items, gradient norm: the same on every rank
//
// Where steps overlap (schedule.h), the next one is begun ahead, in the middle of such a run
//
//   kernels->begin_ahead(next);        the batch that passes run ahead of
//   executor.run_step(schedule, next_schedule);
//   kernels->outcome(-1);              of the batch before, whose update this step had
//   kernels->go_on();                  what was begun ahead is the step at hand
//
// Gradients are sums over micro-batches and replicas of items x gradient of the mean loss, divided
// once by the total number of items. A micro-batch of no items contributes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/batches.h"
#include "trireme/data/input_pipeline.h"
#include "trireme/exec/kernels.h"
#include "trireme/exec/transport.h"
#include "trireme/graph/graph.h"
#include "trireme/import/archive.h"
#include "trireme/import/initial_weights.h"
#include "trireme/plan/gradients.h"
#include "trireme/plan/partition.h"
#include "trireme/torch/optimizer_options.h"
#include "trireme/torch/step_outcome.h"

namespace trireme {

struct StageOptions {
  // These outlive the kernels.
  const Archive* archive = nullptr;
  const Graph* graph = nullptr;  // the archive's, with frozen parameters marked
  const Partition* partition = nullptr;
  const InitialWeights* initial = nullptr;  // --init

  int32_t stage = 0;
  int32_t replica = 0;
  int32_t dp = 1;
  uint64_t seed = 0;
  std::optional<double> clip_norm;
  std::optional<OptimizerOptions> optimizer;  // absent: evaluation only
  // 2: batch t is trained at the weights that the batches before t-1 have made, Schedule's
  // num_weight_versions. Refused with `dp` above 1 for a model that keeps moving averages.
  int32_t num_weight_versions = 1;
  BucketOptions buckets;  // of the gradients
  int32_t num_threads = 1;
};

struct StepInputs {
  int64_t step = 0;  // counted from 0; keys the random numbers
  bool is_training = true;
  bool splits_backward = false;  // the schedule has I and W
  double lr = 0;
  // Gives the inputs that user_inputs() names; its next step is this one.
  InputPipeline* pipeline = nullptr;
  StepShares shares;
};

class StageKernels : public Kernels {
 public:
  static Result<std::unique_ptr<StageKernels>> make(const StageOptions& options);

  // A step after those that were begun. REQUIRES: none is begun ahead.
  virtual Status begin_step(StepInputs inputs) = 0;
  // The step after the one at hand.
  virtual Status begin_ahead(StepInputs inputs) = 0;
  // REQUIRES: it is begun.
  virtual void go_on() = 0;
  // Of the step at hand, or with -1 of the one before.
  [[nodiscard]] virtual StepOutcome outcome(int32_t batch = 0) const = 0;
  // The L2 norm of each input's gradient after a step that exchanged norms; nullopt for what has
  // no gradient. By index into Graph::inputs.
  [[nodiscard]] virtual std::vector<std::optional<double>> gradient_norms() const = 0;

  // The newest values of a parameter or buffer, contiguous, as they are now; the initial ones where
  // this stage does not read it. The message keeps them alive.
  [[nodiscard]] virtual Result<Message> state(int32_t input) const = 0;
  // Replaces them by as many contiguous bytes. REQUIRES: the same.
  [[nodiscard]] virtual Status set_state(int32_t input, std::span<const std::byte> bytes) = 0;
};

}  // namespace trireme
