#include "trireme/worker/block_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "trireme/base/median.h"
#include "trireme/graph/cuts.h"
#include "trireme/torch/operator_libraries.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
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
  TRIREME_TRY(const CutAnalysis cuts, analyze_cuts(setup.graph, example_symbols(setup.graph, 1)));
  timer->in_one_piece_ = partition_graph(setup.graph, cuts.is_replicated, {}, /*num_stages=*/1);
  StageOptions options{.archive = setup.archive.get(),
                       .graph = &setup.graph,
                       .partition = &setup.partition,
                       .stage = 0,
                       .replica = 0,
                       .dp = 1,
                       .seed = setup.request.seed,
                       .clip_norm = {},
                       .optimizer = {},
                       .num_threads = setup.request.threads};
  TRIREME_TRY(timer->blocks_, StageKernels::make(options));
  options.partition = &timer->in_one_piece_;
  options.optimizer = setup.request.optimizer;
  TRIREME_TRY(timer->whole_, StageKernels::make(options));
  return timer;
}

BlockTimer::Size& BlockTimer::size_of(int64_t micro_batch) {
  const auto [entry, is_new] = sizes_.try_emplace(micro_batch);
  Size& size = entry->second;
  if (!is_new) return size;
  size.blocks.resize(setup_.partition.virtual_stages.size());
  size.whole.resize(1);
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

StepInputs BlockTimer::step_inputs(Size& size, TimedStep kind, int64_t micro_batch) {
  return {.step = step_++,
          .is_training = true,
          .splits_backward = kind == TimedStep::kSplit,
          .lr = 0,
          .pipeline = size.inputs.get(),
          .shares = share_step(micro_batch * kMicroBatches, 1, kMicroBatches)};
}

Status BlockTimer::run(TimedStep kind, int64_t micro_batch) {
  Size& size = size_of(micro_batch);
  TRIREME_TRY(blocks_->begin_step(step_inputs(size, kind, micro_batch)));
  for (int32_t k = 0; k < kMicroBatches; ++k) {
    TRIREME_TRY(run_micro_batch(*blocks_, size.blocks, kind, k));
  }
  StepInputs inputs = step_inputs(size, kind, micro_batch);
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(whole_->begin_step(std::move(inputs)));
  const double begin_seconds = seconds_since(begin);
  for (int32_t k = 0; k < kMicroBatches; ++k) {
    TRIREME_TRY(run_micro_batch(*whole_, size.whole, kind, k));
  }
  return finish_step(begin_seconds);
}

Status BlockTimer::run_micro_batch(StageKernels& kernels, Samples& samples, TimedStep kind,
                                   int32_t micro_batch) {
  // Its time is kept as that of `pass`, if that has a value.
  const auto run = [&](std::optional<BlockPass> pass, ActionKind action, int32_t chunk) -> Status {
    const Clock::time_point begin = Clock::now();
    TRIREME_TRY(kernels.compute({.kind = action, .index = micro_batch, .chunk = chunk}));
    const double seconds = seconds_since(begin);
    if (!pass.has_value()) return Status();
    samples[static_cast<size_t>(chunk)][static_cast<size_t>(*pass)].push_back(seconds);
    return Status();
  };
  const auto num_chunks = static_cast<int32_t>(samples.size());
  const bool is_whole = kind == TimedStep::kWhole;
  const bool recomputes = kind == TimedStep::kRecompute;
  const std::optional<BlockPass> no_pass;
  for (int32_t chunk = 0; chunk < num_chunks; ++chunk) {
    TRIREME_TRY(run(is_whole ? std::optional(BlockPass::kForward) : no_pass,
                    recomputes ? ActionKind::kForwardKeepingInput : ActionKind::kForward, chunk));
  }
  for (int32_t chunk = num_chunks - 1; chunk >= 0; --chunk) {
    if (recomputes) TRIREME_TRY(run(BlockPass::kRecompute, ActionKind::kRecompute, chunk));
    if (kind == TimedStep::kSplit) {
      TRIREME_TRY(run(BlockPass::kInputGradient, ActionKind::kInputGradient, chunk));
    } else {
      TRIREME_TRY(run(is_whole ? std::optional(BlockPass::kBackward) : no_pass,
                      ActionKind::kBackward, chunk));
    }
  }
  if (kind != TimedStep::kSplit) return Status();
  for (int32_t chunk = num_chunks - 1; chunk >= 0; --chunk) {
    TRIREME_TRY(run(BlockPass::kWeightGradient, ActionKind::kWeightGradient, chunk));
  }
  return Status();
}

Status BlockTimer::finish_step(double begin_seconds) {
  const Action losses{.kind = ActionKind::kScalars,
                      .index = static_cast<int32_t>(ScalarExchange::kLosses)};
  TRIREME_TRY(const Message message, whole_->message(losses));
  TRIREME_TRY(whole_->complete(losses));
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(whole_->compute({.kind = ActionKind::kUpdate}));
  const StepOutcome outcome = whole_->outcome();
  // Without a loss nothing is updated, which takes no time.
  const bool learns = outcome.items > 0 && std::isfinite(outcome.loss);
  if (learns) updates_.push_back(begin_seconds + seconds_since(begin));
  return Status();
}

std::optional<PassSeconds> BlockTimer::seconds(int64_t micro_batch, size_t block,
                                               BlockPass pass) const {
  const auto found = sizes_.find(micro_batch);
  if (found == sizes_.end()) return std::nullopt;
  const auto of_chunk = [pass](const Samples& samples, size_t chunk) {
    return summary(samples[chunk][static_cast<size_t>(pass)], kMicroBatches);
  };
  const std::optional<PassSeconds> whole = of_chunk(found->second.whole, 0);
  std::optional<PassSeconds> seconds = of_chunk(found->second.blocks, block);
  if (!whole.has_value() || !seconds.has_value()) return std::nullopt;
  double sum = 0;
  for (size_t b = 0; b < found->second.blocks.size(); ++b) {
    sum += of_chunk(found->second.blocks, b)->seconds;
  }
  const double scale = sum > 0 ? whole->seconds / sum : 1;
  seconds->seconds *= scale;
  seconds->spread *= scale;
  return seconds;
}

std::optional<PassSeconds> BlockTimer::update_seconds() const { return summary(updates_, 1); }

}  // namespace trireme
