// InputPipeline: prepares the inputs of a rank's micro-batches on a thread of its own, ahead of the
// step that needs them: reading and converting go on while a step computes.
//
//   InputPipeline pipeline({...});     the thread begins with step 0
//   pipeline.begin_step();             sizes of the micro-batches of the next step
//   pipeline.take(step, 0), ...        their inputs, in any order, each once
//
// It prepares micro-batches in order, up to the end of the step after the one that was begun, and
// holds back when more than `ahead_bytes` lie ready and nobody waits. What it prepares follows from
// the step's number alone, so the results are those of reading at the time of use. A failure is
// that of the micro-batch that it concerns, and is told to whoever takes that.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/batches.h"
#include "trireme/data/feed.h"

namespace trireme {

// The samples of a step and who gets which.
struct StepSamples {
  std::vector<uint64_t> samples;  // of the whole global batch
  StepShares shares;
};

struct InputPipelineOptions {
  const Feed* feed = nullptr;  // outlives the pipeline
  int32_t replica = 0;
  std::vector<size_t> inputs;  // that the rank reads, counted among the user's
  // By step, from 0; any thread.
  std::function<StepSamples(int64_t)> samples;
  int64_t num_steps = 0;
  size_t ahead_bytes = size_t{256} << 20;
};

class InputPipeline {
 public:
  explicit InputPipeline(InputPipelineOptions options);
  InputPipeline(const InputPipeline&) = delete;
  InputPipeline& operator=(const InputPipeline&) = delete;
  ~InputPipeline();  // waits for the read at hand

  // Goes on to the next step, forgetting what was not taken of those before the last. The symbols
  // of the replica's micro-batches. REQUIRES: there is a next step.
  [[nodiscard]] Result<std::vector<SymbolValues>> begin_step();
  // The number of the step that was begun last.
  [[nodiscard]] int64_t begun();
  // As InputPipelineOptions::inputs. REQUIRES: the step was begun last, or is the one before that;
  // nobody has taken them before.
  [[nodiscard]] Result<std::vector<InputTensor>> take(int64_t step, int32_t micro_batch);

 private:
  struct Step {
    int64_t number = 0;
    std::optional<Result<std::vector<SymbolValues>>> symbols;
    std::map<int32_t, Result<std::vector<InputTensor>>> inputs;  // ready, not yet taken
  };
  void run(const std::stop_token& stop);
  void prepare_step(int64_t number, const std::stop_token& stop);
  [[nodiscard]] Result<std::vector<SymbolValues>> symbols_of(const StepSamples& step) const;
  [[nodiscard]] Result<std::vector<InputTensor>> read(std::span<const uint64_t> samples,
                                                      const SymbolValues& symbols) const;
  // Until `is_ready`; false when the pipeline is to end first.
  template <typename Ready>
  bool wait_until(const std::stop_token& stop, const Ready& is_ready);
  Step* find_step(int64_t number);  // REQUIRES: mutex_ is held

  const InputPipelineOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // The one that was begun, the one before, and what is prepared; guarded by mutex_.
  std::deque<Step> steps_;
  int64_t begun_ = -1;          // the step that was begun; guarded by mutex_
  size_t ready_bytes_ = 0;      // guarded by mutex_
  bool is_waited_for_ = false;  // guarded by mutex_
  std::jthread thread_;         // last: it uses all of the above
};

}  // namespace trireme
