#include "trireme/worker/block_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "trireme/torch/operator_libraries.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<int64_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// `warm_up`: how many of the first to leave out where there are more.
std::optional<PassSeconds> summary(std::vector<double> samples, size_t warm_up) {
  if (samples.empty()) return std::nullopt;
  if (samples.size() > warm_up) {
    samples.erase(samples.begin(), samples.begin() + static_cast<int64_t>(warm_up));
  }
  const double middle = median(samples);
  for (double& sample : samples) sample = std::abs(sample - middle);
  return PassSeconds{.seconds = middle, .spread = median(std::move(samples))};
}

}  // namespace

Result<std::unique_ptr<BlockTimer>> BlockTimer::make(const RunSetup& setup) {
  std::unique_ptr<BlockTimer> timer(new BlockTimer(setup));
  TRIREME_TRY(load_operator_libraries(setup.request.operator_libraries));
  TRIREME_TRY(check_library_operators(setup.graph, setup.request.operator_libraries));
  TRIREME_TRY(timer->kernels_, StageKernels::make({.archive = setup.archive.get(),
                                                   .graph = &setup.graph,
                                                   .partition = &setup.partition,
                                                   .stage = 0,
                                                   .replica = 0,
                                                   .dp = 1,
                                                   .seed = setup.request.seed,
                                                   .clip_norm = {},
                                                   .optimizer = setup.request.optimizer,
                                                   .num_threads = setup.request.threads}));
  return timer;
}

BlockTimer::Size& BlockTimer::size_of(int64_t micro_batch) {
  const auto [entry, is_new] = sizes_.try_emplace(micro_batch);
  Size& size = entry->second;
  if (!is_new) return size;
  size.samples.resize(setup_.partition.virtual_stages.size());
  const int64_t batch = micro_batch * kMicroBatches;
  const int64_t num_samples = setup_.data->num_samples();
  size.inputs = std::make_unique<InputPipeline>(InputPipelineOptions{
      .feed = setup_.data.get(),
      .replica = 0,
      .inputs = user_inputs(setup_.graph, setup_.partition.stages[0]),
      .samples =
          [batch, num_samples](int64_t step) {
            StepSamples samples{.samples = {}, .shares = share_step(batch, 1, kMicroBatches)};
            for (int64_t i = 0; i < batch; ++i) {
              samples.samples.push_back(static_cast<uint64_t>((step * batch + i) % num_samples));
            }
            return samples;
          },
      .num_steps = std::numeric_limits<int32_t>::max()});
  return size;
}

Status BlockTimer::run(TimedStep kind, int64_t micro_batch) {
  Size& size = size_of(micro_batch);
  StepInputs inputs{.step = step_++,
                    .is_training = true,
                    .splits_backward = kind == TimedStep::kSplit,
                    .lr = 0,
                    .pipeline = size.inputs.get(),
                    .shares = share_step(micro_batch * kMicroBatches, 1, kMicroBatches)};
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(kernels_->begin_step(std::move(inputs)));
  const double begin_seconds = seconds_since(begin);
  for (int32_t k = 0; k < kMicroBatches; ++k) TRIREME_TRY(run_micro_batch(size, kind, k));
  return finish_step(begin_seconds);
}

Status BlockTimer::run_micro_batch(Size& size, TimedStep kind, int32_t micro_batch) {
  const auto num_blocks = static_cast<int32_t>(setup_.partition.virtual_stages.size());
  const auto run = [&](std::optional<BlockPass> pass, ActionKind action, int32_t block) {
    return run_pass(size, pass, action, micro_batch, block);
  };
  const bool is_whole = kind == TimedStep::kWhole;
  const bool recomputes = kind == TimedStep::kRecompute;
  const std::optional<BlockPass> no_pass;
  for (int32_t block = 0; block < num_blocks; ++block) {
    TRIREME_TRY(run(is_whole ? std::optional(BlockPass::kForward) : no_pass,
                    recomputes ? ActionKind::kForwardKeepingInput : ActionKind::kForward, block));
  }
  for (int32_t block = num_blocks - 1; block >= 0; --block) {
    if (recomputes) TRIREME_TRY(run(BlockPass::kRecompute, ActionKind::kRecompute, block));
    if (kind == TimedStep::kSplit) {
      TRIREME_TRY(run(BlockPass::kInputGradient, ActionKind::kInputGradient, block));
    } else {
      TRIREME_TRY(run(is_whole ? std::optional(BlockPass::kBackward) : no_pass,
                      ActionKind::kBackward, block));
    }
  }
  if (kind != TimedStep::kSplit) return Status();
  for (int32_t block = num_blocks - 1; block >= 0; --block) {
    TRIREME_TRY(run(BlockPass::kWeightGradient, ActionKind::kWeightGradient, block));
  }
  return Status();
}

Status BlockTimer::run_pass(Size& size, std::optional<BlockPass> pass, ActionKind kind,
                            int32_t micro_batch, int32_t block) {
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(kernels_->compute({.kind = kind, .index = micro_batch, .chunk = block}));
  const double seconds = seconds_since(begin);
  if (!pass.has_value()) return Status();
  size.samples[static_cast<size_t>(block)][static_cast<size_t>(*pass)].push_back(seconds);
  return Status();
}

Status BlockTimer::finish_step(double begin_seconds) {
  const Action losses{.kind = ActionKind::kScalars,
                      .index = static_cast<int32_t>(ScalarExchange::kLosses)};
  TRIREME_TRY(const Message message, kernels_->message(losses));
  TRIREME_TRY(kernels_->complete(losses));
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(kernels_->compute({.kind = ActionKind::kUpdate}));
  const StepOutcome outcome = kernels_->outcome();
  // Without a loss nothing is updated, which takes no time.
  const bool learns = outcome.items > 0 && std::isfinite(outcome.loss);
  if (learns) updates_.push_back(begin_seconds + seconds_since(begin));
  return Status();
}

std::optional<PassSeconds> BlockTimer::seconds(int64_t micro_batch, size_t block,
                                               BlockPass pass) const {
  const auto found = sizes_.find(micro_batch);
  if (found == sizes_.end()) return std::nullopt;
  return summary(found->second.samples[block][static_cast<size_t>(pass)], kMicroBatches);
}

std::optional<PassSeconds> BlockTimer::update_seconds() const { return summary(updates_, 1); }

}  // namespace trireme
