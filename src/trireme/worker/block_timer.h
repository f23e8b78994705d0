// BlockTimer: runs training steps of each stage of a plan alone, and times every pass of every
// block in it: what is timed is what trains. What other stages would send is replayed
// (stage_borders.h), and only the memory of this stage is used meanwhile: how long a pass takes
// depends on what lies in the caches, and so on what else the stage holds. Without a plan one stage
// holds the whole model.
//
// Of each stage there are two models: one whose chunks (chunk_kernels.h) are the blocks, and one
// with the chunks of the plan. A border between chunks costs time that blocks of one chunk do not
// take, so the times of the blocks are scaled to the chunks that they are of. Weights and gradients
// lie in memory twice: a step that comes after one of another model, stage or size finds its memory
// out of the caches and the allocator's lists in disorder (it takes 5 to 10 % longer where passes
// are short, and its update 25 %), so one that does not count goes before it.
//
// A step has micro-batches of one size, and comes in three kinds, for the passes that exclude each
// other. One of them is the plan's: its passes come in the order of the plan's schedule, so that as
// many micro-batches are in memory as there will be. What it has not is timed by the others, one
// micro-batch after the other:
//
//   kWhole      F of each chunk, then B of each in reverse
//   kSplit      F of each chunk, then I of each in reverse, then W
//   kRecompute  Fc of each chunk, then R and B of each in reverse
//
// The learning rate is 0: steps may be repeated for ever.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <time.h>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cost/profile.h"
#include "trireme/schedule/schedule.h"
#include "trireme/torch/stage_kernels.h"
#include "trireme/worker/stage_borders.h"

namespace trireme {

enum class TimedStep : uint8_t { kWhole, kSplit, kRecompute };
enum class TimedModel : uint8_t { kBlocks, kChunks };

class BlockTimer {
 public:
  // `setup`: of make_profile_setup(); it outlives the timer.
  // With processor time, that of the thread that computes.
  static Result<std::unique_ptr<BlockTimer>> make(const RunSetup& setup, bool takes_processor_time);

  // Runs a step of a stage and keeps its times; before it one that warms up, where the last one was
  // of another stage, model or size.
  Status run(int32_t stage, TimedModel model, TimedStep kind, int64_t micro_batch);

  // Whether the plan's schedule has steps of this kind.
  [[nodiscard]] bool is_of_plan(int32_t stage, TimedStep kind) const {
    const Model& model = models_[static_cast<size_t>(stage)][0];
    return model.orders[static_cast<size_t>(kind)]
        .is_timed[static_cast<size_t>(BlockPass::kForward)];
  }
  // Those that run a part of the block, one for each part.
  [[nodiscard]] std::vector<int32_t> stages_of(size_t block) const;
  // Of a pass of a block (profile_blocks()) that was timed, as part of its chunk: median and
  // spread, over steps, of the mean over micro-batches, of which the first is slower; the first
  // step of its kind and size does not count where there was another. nullopt: it was not timed
  // with both models.
  [[nodiscard]] std::optional<PassSeconds> seconds(int64_t micro_batch, size_t block,
                                                   BlockPass pass) const;
  // The same for the update of all that the stage holds, with what a step begins with: gradients
  // become zero.
  [[nodiscard]] std::optional<PassSeconds> update_seconds(int32_t stage) const;

 private:
  // By chunk and pass, the seconds of each micro-batch, the steps one after the other.
  using Samples = std::vector<std::array<std::vector<double>, kNumBlockPasses>>;
  // A stage of one of the two partitions.
  struct Model {
    // Of a chunk: the border before it and behind it that another stage is at the other side of, by
    // the virtual stage of the plan that begins there; -1: none.
    struct Chunk {
      int32_t border_before = -1;
      int32_t border_after = -1;
    };
    // A kind of step: what it computes but its update, and which passes it is there for.
    struct Order {
      std::vector<Action> actions;
      std::array<bool, kNumBlockPasses> is_timed = {};
    };
    std::unique_ptr<StageKernels> kernels;
    std::vector<Chunk> chunks;
    std::array<Order, 3> orders;  // by TimedStep
  };
  struct Size {
    std::vector<std::unique_ptr<InputPipeline>> inputs;  // by stage
    std::vector<std::array<Samples, 2>> samples;         // by stage and TimedModel
    StageBorders borders;
    std::vector<std::byte> losses;  // of a step, as SC exchanges them; empty: of one stage
  };
  // What becomes of what a pass sends to another stage.
  enum class Crossing : uint8_t { kKept, kDropped };
  // A part of a block that the plan does not cut, as it is timed.
  struct Piece {
    size_t block = 0;
    int32_t virtual_stage = 0;  // of the plan
    int32_t stage = 0;
    size_t chunk = 0;  // of the stage
    size_t place = 0;  // among the pieces of the stage
  };

  BlockTimer(const RunSetup& setup, bool takes_processor_time)
      : setup_(setup),
        clock_(takes_processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC),
        num_micro_batches_(setup.plan.micro_batches) {}
  [[nodiscard]] double now_s() const;
  Status find_pieces();
  Status make_models();
  // Of a stage with the chunks of the plan.
  [[nodiscard]] static std::array<Model::Order, 3> orders_of(const std::vector<Action>& scheduled,
                                                             int32_t num_chunks,
                                                             int32_t num_micro_batches);
  // The same, each pass of a chunk by its pieces.
  [[nodiscard]] Model::Order in_pieces(const Model::Order& order, int32_t stage) const;
  // Of virtual stages that are chunks of this stage; `plans` tells the plan's for each of them.
  [[nodiscard]] static std::vector<Model::Chunk> borders_of(const std::vector<int32_t>& chunks,
                                                            const std::vector<int32_t>& plans);
  Model& model_of(int32_t stage, TimedModel model) {
    return models_[static_cast<size_t>(stage)][static_cast<size_t>(model)];
  }
  Result<Size*> size_of(int64_t micro_batch);
  // Runs a micro-batch through all stages.
  Status find_borders(Size& size, int64_t micro_batch);
  [[nodiscard]] StepInputs step_inputs(Size& size, int32_t stage, bool splits_backward,
                                       int64_t micro_batch);
  Status run_step(int32_t stage, TimedModel model, TimedStep kind, int64_t micro_batch,
                  bool is_kept);
  // The seconds of the pass.
  Result<double> run_pass(Model& model, StageBorders& borders, Crossing crossing,
                          const Action& action);
  // The seconds of its update; nullopt: there was nothing to learn from.
  Result<std::optional<double>> update(StageKernels& kernels, const std::vector<std::byte>& losses);

  const RunSetup& setup_;
  clockid_t clock_;
  int32_t num_micro_batches_;
  std::vector<Piece> pieces_;
  Partition in_pieces_;
  std::vector<std::array<Model, 2>> models_;  // by stage and TimedModel
  std::map<int64_t, Size> sizes_;             // by micro-batch
  std::optional<std::tuple<int32_t, TimedModel, int64_t>> last_;
  std::vector<std::vector<double>> updates_;  // by stage
  int64_t step_ = 0;
};

}  // namespace trireme
