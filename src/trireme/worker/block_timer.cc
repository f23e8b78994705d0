#include "trireme/worker/block_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "trireme/base/median.h"
#include "trireme/cost/step_costs_of.h"
#include "trireme/graph/cuts.h"
#include "trireme/plan/plan.h"
#include "trireme/torch/operator_libraries.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::array kModels = {TimedModel::kBlocks, TimedModel::kChunks};

constexpr Action kLosses = {.kind = ActionKind::kScalars,
                            .index = static_cast<int32_t>(ScalarExchange::kLosses)};

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
  TRIREME_TRY(timer->find_pieces());
  TRIREME_TRY(timer->make_models());
  return timer;
}

Status BlockTimer::find_pieces() {
  TRIREME_TRY(const std::vector<int32_t> blocks, profile_blocks(setup_.graph));
  TRIREME_TRY(const std::vector<int32_t> cuts, cuts_of(setup_.plan, setup_.graph));
  std::set<int32_t> starts(blocks.begin(), blocks.end());
  starts.insert(cuts.begin(), cuts.end());
  std::vector<std::vector<int32_t>> stages(setup_.partition.stages.size());
  for (const int32_t start : starts) {
    // Of those that begin up to there, the last.
    const auto last_of = [start](const std::vector<int32_t>& begins) {
      return std::ranges::upper_bound(begins, start) - begins.begin();
    };
    Piece& piece = pieces_.emplace_back();
    piece.block = static_cast<size_t>(last_of(blocks)) - 1;
    piece.virtual_stage = static_cast<int32_t>(last_of(cuts));
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      const std::vector<int32_t>& chunks = setup_.partition.stages[stage].virtual_stages;
      const auto found = std::ranges::find(chunks, piece.virtual_stage);
      if (found == chunks.end()) continue;
      piece.stage = static_cast<int32_t>(stage);
      piece.chunk = static_cast<size_t>(found - chunks.begin());
      piece.place = stages[stage].size();
      stages[stage].push_back(static_cast<int32_t>(pieces_.size()) - 1);
    }
  }
  TRIREME_TRY(const CutAnalysis analysis,
              analyze_cuts(setup_.graph, example_symbols(setup_.graph, 1)));
  starts.erase(starts.begin());
  in_pieces_ = partition_graph(setup_.graph, analysis.is_replicated,
                               std::vector<int32_t>(starts.begin(), starts.end()), stages);
  return Status();
}

Status BlockTimer::make_models() {
  std::vector<int32_t> of_pieces;
  for (const Piece& piece : pieces_) of_pieces.push_back(piece.virtual_stage);
  std::vector<int32_t> of_chunks;
  for (size_t v = 0; v < setup_.partition.virtual_stages.size(); ++v) {
    of_chunks.push_back(static_cast<int32_t>(v));
  }
  StageOptions options{.archive = setup_.archive.get(),
                       .graph = &setup_.graph,
                       .replica = 0,
                       .dp = 1,
                       .seed = setup_.request.seed,
                       .clip_norm = {},
                       .optimizer = {},
                       .num_threads = setup_.request.threads};
  for (size_t stage = 0; stage < setup_.partition.stages.size(); ++stage) {
    options.stage = static_cast<int32_t>(stage);
    models_.emplace_back();
    updates_.emplace_back();
    for (const TimedModel model : kModels) {
      const bool is_whole = model == TimedModel::kChunks;
      options.partition = is_whole ? &setup_.partition : &in_pieces_;
      options.optimizer = is_whole ? std::optional(setup_.request.optimizer) : std::nullopt;
      Model& made = model_of(options.stage, model);
      TRIREME_TRY(made.kernels, StageKernels::make(options));
      made.chunks = borders_of(options.partition->stages[stage].virtual_stages,
                               is_whole ? of_chunks : of_pieces);
    }
  }
  return Status();
}

std::vector<BlockTimer::Model::Chunk> BlockTimer::borders_of(const std::vector<int32_t>& chunks,
                                                             const std::vector<int32_t>& plans) {
  const auto is_elsewhere = [&](int32_t virtual_stage) {
    return virtual_stage >= 0 && virtual_stage < static_cast<int32_t>(plans.size()) &&
           std::ranges::find(chunks, virtual_stage) == chunks.end();
  };
  std::vector<Model::Chunk> borders;
  for (const int32_t chunk : chunks) {
    Model::Chunk& border = borders.emplace_back();
    if (is_elsewhere(chunk - 1)) border.border_before = plans[static_cast<size_t>(chunk)];
    if (is_elsewhere(chunk + 1)) border.border_after = plans[static_cast<size_t>(chunk) + 1];
  }
  return borders;
}

Result<BlockTimer::Size*> BlockTimer::size_of(int64_t micro_batch) {
  const auto [entry, is_new] = sizes_.try_emplace(micro_batch);
  Size& size = entry->second;
  if (!is_new) return &size;
  const int64_t batch = micro_batch * kMicroBatches;
  const int64_t num_samples = setup_.data->num_samples();
  for (size_t stage = 0; stage < models_.size(); ++stage) {
    std::array<Samples, 2>& samples = size.samples.emplace_back();
    for (const TimedModel model : kModels) {
      const size_t place = static_cast<size_t>(model);
      samples[place].resize(models_[stage][place].chunks.size());
    }
    size.inputs.push_back(std::make_unique<InputPipeline>(InputPipelineOptions{
        .feed = setup_.data.get(),
        .replica = 0,
        .inputs = user_inputs(setup_.graph, setup_.partition.stages[stage]),
        .samples =
            [batch, num_samples](int64_t step) {
              StepSamples found{.samples = {}, .shares = share_step(batch, 1, kMicroBatches)};
              for (int64_t i = 0; i < batch; ++i) {
                found.samples.push_back(static_cast<uint64_t>((step * batch + i) % num_samples));
              }
              return found;
            },
        .num_steps = std::numeric_limits<int32_t>::max()}));
  }
  if (models_.size() > 1) TRIREME_TRY(find_borders(size, micro_batch));
  return &size;
}

Status BlockTimer::find_borders(Size& size, int64_t micro_batch) {
  const auto count = static_cast<int32_t>(setup_.partition.virtual_stages.size());
  std::vector<std::pair<int32_t, int32_t>> chunks(static_cast<size_t>(count));
  for (int32_t stage = 0; stage < static_cast<int32_t>(models_.size()); ++stage) {
    const std::vector<int32_t>& own = setup_.partition.stages[stage].virtual_stages;
    for (size_t chunk = 0; chunk < own.size(); ++chunk) {
      chunks[static_cast<size_t>(own[chunk])] = {stage, static_cast<int32_t>(chunk)};
    }
    TRIREME_TRY(model_of(stage, TimedModel::kChunks)
                    .kernels->begin_step(step_inputs(size, stage, TimedStep::kWhole, micro_batch)));
  }
  const auto run = [&](ActionKind kind, int32_t virtual_stage) -> Status {
    const auto [stage, chunk] = chunks[static_cast<size_t>(virtual_stage)];
    Model& model = model_of(stage, TimedModel::kChunks);
    Samples unused(model.chunks.size());
    return run_pass(model, size.borders, Crossing::kKept,
                    {.kind = kind, .index = 0, .chunk = chunk}, std::nullopt, unused);
  };
  for (int32_t v = 0; v < count; ++v) TRIREME_TRY(run(ActionKind::kForward, v));
  for (int32_t v = count - 1; v >= 0; --v) TRIREME_TRY(run(ActionKind::kBackward, v));
  StageKernels& last = *model_of(chunks.back().first, TimedModel::kChunks).kernels;
  TRIREME_TRY(const Message message, last.message(kLosses));
  size.losses.assign(message.parts[0].begin(), message.parts[0].end());
  return Status();
}

StepInputs BlockTimer::step_inputs(Size& size, int32_t stage, TimedStep kind, int64_t micro_batch) {
  return {.step = step_++,
          .is_training = true,
          .splits_backward = kind == TimedStep::kSplit,
          .lr = 0,
          .pipeline = size.inputs[static_cast<size_t>(stage)].get(),
          .shares = share_step(micro_batch * kMicroBatches, 1, kMicroBatches)};
}

Status BlockTimer::run(int32_t stage, TimedModel model, TimedStep kind, int64_t micro_batch) {
  if (const std::tuple now(stage, model, micro_batch); last_ != now) {
    TRIREME_TRY(run_step(stage, model, kind, micro_batch, /*is_kept=*/false));
    last_ = now;
  }
  return run_step(stage, model, kind, micro_batch, /*is_kept=*/true);
}

Status BlockTimer::run_step(int32_t stage, TimedModel timed, TimedStep kind, int64_t micro_batch,
                            bool is_kept) {
  TRIREME_TRY(Size* const size, size_of(micro_batch));
  Model& model = model_of(stage, timed);
  Samples samples(model.chunks.size());
  StepInputs inputs = step_inputs(*size, stage, kind, micro_batch);
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(model.kernels->begin_step(std::move(inputs)));
  const double begin_seconds = seconds_since(begin);
  for (int32_t k = 0; k < kMicroBatches; ++k) {
    TRIREME_TRY(run_micro_batch(model, size->borders, samples, kind, k));
  }
  std::optional<double> update_seconds;
  if (timed == TimedModel::kChunks) {
    TRIREME_TRY(update_seconds, update(*model.kernels, size->losses));
  }
  if (!is_kept) return Status();
  Samples& all = size->samples[static_cast<size_t>(stage)][static_cast<size_t>(timed)];
  for (size_t chunk = 0; chunk < samples.size(); ++chunk) {
    for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
      const std::vector<double>& added = samples[chunk][pass];
      all[chunk][pass].insert(all[chunk][pass].end(), added.begin(), added.end());
    }
  }
  if (update_seconds.has_value()) {
    updates_[static_cast<size_t>(stage)].push_back(begin_seconds + *update_seconds);
  }
  return Status();
}

Status BlockTimer::run_pass(Model& model, StageBorders& borders, Crossing crossing,
                            const Action& action, std::optional<BlockPass> pass, Samples& samples) {
  StageKernels& kernels = *model.kernels;
  const auto crossing_of = [&action](ActionKind kind) {
    return Action{.kind = kind, .index = action.index, .chunk = action.chunk};
  };
  const Model::Chunk& chunk = model.chunks[static_cast<size_t>(action.chunk)];
  const bool is_forward =
      action.kind == ActionKind::kForward || action.kind == ActionKind::kForwardKeepingInput;
  const bool is_backward =
      action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGradient;
  if (is_forward && chunk.border_before >= 0) {
    TRIREME_TRY(borders.give(kernels, crossing_of(ActionKind::kReceiveActivation),
                             chunk.border_before));
  }
  if (is_backward && chunk.border_after >= 0) {
    TRIREME_TRY(
        borders.give(kernels, crossing_of(ActionKind::kReceiveGradient), chunk.border_after));
  }
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(kernels.compute(action));
  if (pass.has_value()) {
    samples[static_cast<size_t>(action.chunk)][static_cast<size_t>(*pass)].push_back(
        seconds_since(begin));
  }
  const auto send = [&](ActionKind kind, int32_t border) {
    const Action sent = crossing_of(kind);
    return crossing == Crossing::kKept ? borders.keep(kernels, sent, border)
                                       : StageBorders::drop(kernels, sent);
  };
  if (is_forward && chunk.border_after >= 0) {
    TRIREME_TRY(send(ActionKind::kSendActivation, chunk.border_after));
  }
  if (is_backward && chunk.border_before >= 0) {
    TRIREME_TRY(send(ActionKind::kSendGradient, chunk.border_before));
  }
  return Status();
}

Status BlockTimer::run_micro_batch(Model& model, StageBorders& borders, Samples& samples,
                                   TimedStep kind, int32_t micro_batch) {
  const auto run = [&](std::optional<BlockPass> pass, ActionKind action, int32_t chunk) {
    return run_pass(model, borders, Crossing::kDropped,
                    {.kind = action, .index = micro_batch, .chunk = chunk}, pass, samples);
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

Result<std::optional<double>> BlockTimer::update(StageKernels& kernels,
                                                 const std::vector<std::byte>& losses) {
  TRIREME_TRY(const Message message, kernels.message(kLosses));
  if (!losses.empty()) std::ranges::copy(losses, message.parts[0].begin());
  TRIREME_TRY(kernels.complete(kLosses));
  const Clock::time_point begin = Clock::now();
  TRIREME_TRY(kernels.compute({.kind = ActionKind::kUpdate}));
  const double seconds = seconds_since(begin);
  const StepOutcome outcome = kernels.outcome();
  // Without a loss nothing is updated, which takes no time.
  const bool learns = outcome.items > 0 && std::isfinite(outcome.loss);
  return learns ? std::optional(seconds) : std::nullopt;
}

std::vector<int32_t> BlockTimer::stages_of(size_t block) const {
  std::vector<int32_t> stages;
  for (const Piece& piece : pieces_) {
    if (piece.block == block) stages.push_back(piece.stage);
  }
  return stages;
}

std::optional<PassSeconds> BlockTimer::seconds(int64_t micro_batch, size_t block,
                                               BlockPass pass) const {
  const auto found = sizes_.find(micro_batch);
  if (found == sizes_.end()) return std::nullopt;
  const auto of = [&](const Piece& piece, TimedModel model) {
    const Samples& samples =
        found->second.samples[static_cast<size_t>(piece.stage)][static_cast<size_t>(model)];
    const size_t chunk = model == TimedModel::kBlocks ? piece.place : piece.chunk;
    return summary(samples[chunk][static_cast<size_t>(pass)], kMicroBatches);
  };
  PassSeconds sum{.seconds = 0, .spread = 0};
  for (const Piece& piece : pieces_) {
    if (piece.block != block) continue;
    const std::optional<PassSeconds> whole = of(piece, TimedModel::kChunks);
    const std::optional<PassSeconds> alone = of(piece, TimedModel::kBlocks);
    if (!whole.has_value() || !alone.has_value()) return std::nullopt;
    double of_chunk = 0;
    for (const Piece& other : pieces_) {
      if (other.virtual_stage == piece.virtual_stage) {
        of_chunk += of(other, TimedModel::kBlocks)->seconds;
      }
    }
    const double scale = of_chunk > 0 ? whole->seconds / of_chunk : 1;
    sum.seconds += alone->seconds * scale;
    sum.spread += alone->spread * scale;
  }
  return sum;
}

std::optional<PassSeconds> BlockTimer::update_seconds(int32_t stage) const {
  return summary(updates_[static_cast<size_t>(stage)], 1);
}

}  // namespace trireme
