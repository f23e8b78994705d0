// BlockTimer: runs training steps of one rank that holds the whole model, each block of it as a
// chunk (chunk_kernels.h), and times every pass of every chunk: what is timed is what trains. A
// border between chunks costs time that blocks of one stage do not take, so each step is run a
// second time with the model in one piece, and the times of the blocks are scaled to it. Weights
// and gradients lie in memory twice.
//
// A step has kMicroBatches micro-batches of one size, one after the other as the last stage of 1F1B
// has them, and comes in three kinds, for the passes that exclude each other:
//
//   kWhole      F of each block, then B of each in reverse; F and B are timed
//   kSplit      F of each block, then I of each in reverse, then W; I and W are timed
//   kRecompute  Fc of each block, then R and B of each in reverse; R is timed
//
// The learning rate is 0: steps may be repeated for ever.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cost/profile.h"
#include "trireme/torch/stage_kernels.h"

namespace trireme {

enum class TimedStep : uint8_t { kWhole, kSplit, kRecompute };

class BlockTimer {
 public:
  static constexpr int32_t kMicroBatches = 3;

  // `setup`: of make_profile_setup(); it outlives the timer.
  static Result<std::unique_ptr<BlockTimer>> make(const RunSetup& setup);

  // Runs a step and keeps its times.
  Status run(TimedStep kind, int64_t micro_batch);

  // Median and spread of a pass that was timed, as part of a stage; the first step of its kind and
  // size warms up, and does not count where there was another. nullopt: it was never timed.
  [[nodiscard]] std::optional<PassSeconds> seconds(int64_t micro_batch, size_t block,
                                                   BlockPass pass) const;
  // The same for the update of all blocks, with what a step begins with: gradients become zero.
  [[nodiscard]] std::optional<PassSeconds> update_seconds() const;

 private:
  // By chunk and pass, the seconds of each micro-batch, the steps one after the other.
  using Samples = std::vector<std::array<std::vector<double>, kNumBlockPasses>>;
  struct Size {
    std::unique_ptr<InputPipeline> inputs;
    Samples blocks;
    Samples whole;  // of one chunk
  };

  explicit BlockTimer(const RunSetup& setup) : setup_(setup) {}
  Size& size_of(int64_t micro_batch);
  [[nodiscard]] StepInputs step_inputs(Size& size, TimedStep kind, int64_t micro_batch);
  static Status run_micro_batch(StageKernels& kernels, Samples& samples, TimedStep kind,
                                int32_t micro_batch);
  Status finish_step(double begin_seconds);

  const RunSetup& setup_;
  Partition in_one_piece_;
  std::unique_ptr<StageKernels> blocks_;
  std::unique_ptr<StageKernels> whole_;  // which has the optimizer
  std::map<int64_t, Size> sizes_;        // by micro-batch
  std::vector<double> updates_;
  int64_t step_ = 0;
};

}  // namespace trireme
