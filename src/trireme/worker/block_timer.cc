#include "trireme/worker/block_timer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "trireme/base/median.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/cost/step_costs_of.h"
#include "trireme/graph/cuts.h"
#include "trireme/plan/plan.h"
#include "trireme/torch/operator_libraries.h"

namespace trireme {
namespace {

constexpr std::array kModels = {TimedModel::kBlocks, TimedModel::kChunks};

constexpr Action kLosses = {.kind = ActionKind::kScalars,
                            .index = static_cast<int32_t>(ScalarExchange::kLosses)};

BlockPass pass_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kBackward:
      return BlockPass::kBackward;
    case ActionKind::kInputGradient:
      return BlockPass::kInputGradient;
    case ActionKind::kWeightGradient:
      return BlockPass::kWeightGradient;
    case ActionKind::kRecompute:
      return BlockPass::kRecompute;
    default:
      return BlockPass::kForward;
  }
}

constexpr auto index_of(auto each) { return static_cast<size_t>(each); }

// The passes of a step that is no plan's.
std::vector<Action> one_after_the_other(TimedStep kind, int32_t num_chunks,
                                        int32_t num_micro_batches) {
  using enum ActionKind;
  std::vector<Action> actions;
  for (int32_t k = 0; k < num_micro_batches; ++k) {
    const auto add = [&](ActionKind action, int32_t chunk) {
      actions.push_back({.kind = action, .index = k, .chunk = chunk});
    };
    for (int32_t chunk = 0; chunk < num_chunks; ++chunk) {
      add(kind == TimedStep::kRecompute ? kForwardKeepingInput : kForward, chunk);
    }
    for (int32_t chunk = num_chunks - 1; chunk >= 0; --chunk) {
      if (kind == TimedStep::kRecompute) add(kRecompute, chunk);
      add(kind == TimedStep::kSplit ? kInputGradient : kBackward, chunk);
    }
    for (int32_t chunk = num_chunks - 1; kind == TimedStep::kSplit && chunk >= 0; --chunk) {
      add(kWeightGradient, chunk);
    }
  }
  return actions;
}

// Of means over so many at a time; the first does not count where there are others.
std::optional<PassSeconds> summary(const std::vector<double>& seconds, size_t at_a_time) {
  std::vector<double> samples;
  for (size_t i = 0; i + at_a_time <= seconds.size(); i += at_a_time) {
    const double sum = std::accumulate(&seconds[i], &seconds[i] + at_a_time, 0.0);
    samples.push_back(sum / static_cast<double>(at_a_time));
  }
  if (samples.empty()) return std::nullopt;
  if (samples.size() > 1) samples.erase(samples.begin());
  const double middle = median(samples);
  for (double& sample : samples) sample = std::abs(sample - middle);
  return PassSeconds{.seconds = middle, .spread = median(std::move(samples))};
}

}  // namespace

double BlockTimer::now_s() const {
  timespec time{};
  ::clock_gettime(clock_, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Result<std::unique_ptr<BlockTimer>> BlockTimer::make(const RunSetup& setup,
                                                     bool takes_processor_time) {
  std::unique_ptr<BlockTimer> timer(new BlockTimer(setup, takes_processor_time));
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
  TRIREME_TRY(const Schedule schedule, step_schedule(setup_, /*is_training=*/true,
                                                     {num_micro_batches_}, NormExchange::kNone));
  StageOptions options{.archive = setup_.archive.get(),
                       .graph = &setup_.graph,
                       .replica = 0,
                       .dp = 1,
                       .seed = setup_.request.seed,
                       .clip_norm = {},
                       .optimizer = {},
                       .num_weight_versions = num_weight_versions(setup_.plan),
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
      made.orders = orders_of(schedule.ranks[stage], setup_.plan.chunks, num_micro_batches_);
      if (is_whole) continue;
      for (Model::Order& order : made.orders) order = in_pieces(order, options.stage);
    }
  }
  return Status();
}

std::array<BlockTimer::Model::Order, 3> BlockTimer::orders_of(const std::vector<Action>& scheduled,
                                                              int32_t num_chunks,
                                                              int32_t num_micro_batches) {
  using enum TimedStep;
  std::vector<Action> passes;
  std::array<bool, kNumBlockPasses> is_scheduled = {};
  for (const Action& action : scheduled) {
    if (!is_compute(action.kind) || action.kind == ActionKind::kUpdate) continue;
    passes.push_back(action);
    is_scheduled[index_of(pass_of(action.kind))] = true;
  }
  const TimedStep of_plan = is_scheduled[index_of(BlockPass::kInputGradient)] ? kSplit
                            : is_scheduled[index_of(BlockPass::kRecompute)]   ? kRecompute
                                                                              : kWhole;
  std::array<Model::Order, 3> orders;
  for (const TimedStep kind : {kWhole, kSplit, kRecompute}) {
    Model::Order& order = orders[index_of(kind)];
    order.actions =
        kind == of_plan ? passes : one_after_the_other(kind, num_chunks, num_micro_batches);
    order.is_timed[index_of(BlockPass::kForward)] = kind == of_plan;
    order.is_timed[index_of(BlockPass::kBackward)] = kind == kWhole;
    order.is_timed[index_of(BlockPass::kInputGradient)] = kind == kSplit;
    order.is_timed[index_of(BlockPass::kWeightGradient)] = kind == kSplit;
    order.is_timed[index_of(BlockPass::kRecompute)] = kind == kRecompute;
    for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
      if (is_scheduled[pass]) order.is_timed[pass] = kind == of_plan;
    }
  }
  return orders;
}

BlockTimer::Model::Order BlockTimer::in_pieces(const Model::Order& order, int32_t stage) const {
  Model::Order found{.actions = {}, .is_timed = order.is_timed};
  for (const Action& action : order.actions) {
    std::vector<Action> passes;
    for (const Piece& piece : pieces_) {
      if (piece.stage != stage || piece.chunk != index_of(action.chunk)) continue;
      passes.push_back(action);
      passes.back().chunk = static_cast<int32_t>(piece.place);
    }
    const bool is_backward = !is_forward(action.kind) && action.kind != ActionKind::kRecompute;
    if (is_backward) std::ranges::reverse(passes);
    found.actions.insert(found.actions.end(), passes.begin(), passes.end());
  }
  return found;
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
    if (is_elsewhere(chunk - 1)) border.border_before = plans[index_of(chunk)];
    if (is_elsewhere(chunk + 1)) border.border_after = plans[index_of(chunk) + 1];
  }
  return borders;
}

Result<BlockTimer::Size*> BlockTimer::size_of(int64_t micro_batch) {
  const auto [entry, is_new] = sizes_.try_emplace(micro_batch);
  Size& size = entry->second;
  if (!is_new) return &size;
  const int64_t batch = micro_batch * num_micro_batches_;
  const int64_t num_samples = setup_.data->num_samples();
  for (size_t stage = 0; stage < models_.size(); ++stage) {
    std::array<Samples, 2>& samples = size.samples.emplace_back();
    for (const TimedModel model : kModels) {
      const size_t place = index_of(model);
      samples[place].resize(models_[stage][place].chunks.size());
    }
    size.inputs.push_back(std::make_unique<InputPipeline>(InputPipelineOptions{
        .feed = setup_.data.get(),
        .replica = 0,
        .inputs = user_inputs(setup_.graph, setup_.partition.stages[stage]),
        .samples =
            [batch, num_samples, count = num_micro_batches_](int64_t step) {
              StepSamples found{.samples = {}, .shares = share_step(batch, 1, count)};
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
      chunks[index_of(own[chunk])] = {stage, static_cast<int32_t>(chunk)};
    }
    TRIREME_TRY(
        model_of(stage, TimedModel::kChunks)
            .kernels->begin_step(step_inputs(size, stage, /*splits_backward=*/false, micro_batch)));
  }
  const auto run = [&](ActionKind kind, int32_t virtual_stage) -> Status {
    const auto [stage, chunk] = chunks[index_of(virtual_stage)];
    const Result<double> ran = run_pass(model_of(stage, TimedModel::kChunks), size.borders,
                                        Crossing::kKept, {.kind = kind, .chunk = chunk});
    return ran.ok() ? Status() : Status(ran.error());
  };
  for (int32_t v = 0; v < count; ++v) TRIREME_TRY(run(ActionKind::kForward, v));
  for (int32_t v = count - 1; v >= 0; --v) TRIREME_TRY(run(ActionKind::kBackward, v));
  StageKernels& last = *model_of(chunks.back().first, TimedModel::kChunks).kernels;
  TRIREME_TRY(const Message message, last.message(kLosses));
  size.losses.assign(message.parts[0].begin(), message.parts[0].end());
  return Status();
}

StepInputs BlockTimer::step_inputs(Size& size, int32_t stage, bool splits_backward,
                                   int64_t micro_batch) {
  return {.step = step_++,
          .is_training = true,
          .splits_backward = splits_backward,
          .lr = 0,
          .pipeline = size.inputs[index_of(stage)].get(),
          .shares = share_step(micro_batch * num_micro_batches_, 1, num_micro_batches_)};
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
  const Model::Order& order = model.orders[index_of(kind)];
  const bool splits_backward = std::ranges::any_of(order.actions, [](const Action& action) {
    return action.kind == ActionKind::kInputGradient;
  });
  Samples samples(model.chunks.size());
  StepInputs inputs = step_inputs(*size, stage, splits_backward, micro_batch);
  const double begin = now_s();
  TRIREME_TRY(model.kernels->begin_step(std::move(inputs)));
  const double begin_seconds = now_s() - begin;
  for (const Action& action : order.actions) {
    TRIREME_TRY(const double seconds, run_pass(model, size->borders, Crossing::kDropped, action));
    const size_t pass = index_of(pass_of(action.kind));
    if (order.is_timed[pass]) samples[index_of(action.chunk)][pass].push_back(seconds);
  }
  std::optional<double> update_seconds;
  if (timed == TimedModel::kChunks) {
    TRIREME_TRY(update_seconds, update(*model.kernels, size->losses));
  }
  if (!is_kept) return Status();
  Samples& all = size->samples[index_of(stage)][index_of(timed)];
  for (size_t chunk = 0; chunk < samples.size(); ++chunk) {
    for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
      const std::vector<double>& added = samples[chunk][pass];
      all[chunk][pass].insert(all[chunk][pass].end(), added.begin(), added.end());
    }
  }
  if (update_seconds.has_value()) {
    updates_[index_of(stage)].push_back(begin_seconds + *update_seconds);
  }
  return Status();
}

Result<double> BlockTimer::run_pass(Model& model, StageBorders& borders, Crossing crossing,
                                    const Action& action) {
  StageKernels& kernels = *model.kernels;
  const auto crossing_of = [&action](ActionKind kind) {
    return Action{.kind = kind, .index = action.index, .chunk = action.chunk};
  };
  const Model::Chunk& chunk = model.chunks[index_of(action.chunk)];
  if (is_forward(action.kind) && chunk.border_before >= 0) {
    TRIREME_TRY(
        borders.give(kernels, crossing_of(ActionKind::kReceiveActivation), chunk.border_before));
  }
  if (takes_gradient(action.kind) && chunk.border_after >= 0) {
    TRIREME_TRY(
        borders.give(kernels, crossing_of(ActionKind::kReceiveGradient), chunk.border_after));
  }
  const double begin = now_s();
  TRIREME_TRY(kernels.compute(action));
  const double seconds = now_s() - begin;
  const auto send = [&](ActionKind kind, int32_t border) {
    const Action sent = crossing_of(kind);
    return crossing == Crossing::kKept ? borders.keep(kernels, sent, border)
                                       : StageBorders::drop(kernels, sent);
  };
  if (is_forward(action.kind) && chunk.border_after >= 0) {
    TRIREME_TRY(send(ActionKind::kSendActivation, chunk.border_after));
  }
  if (takes_gradient(action.kind) && chunk.border_before >= 0) {
    TRIREME_TRY(send(ActionKind::kSendGradient, chunk.border_before));
  }
  return seconds;
}

Result<std::optional<double>> BlockTimer::update(StageKernels& kernels,
                                                 const std::vector<std::byte>& losses) {
  TRIREME_TRY(const Message message, kernels.message(kLosses));
  if (!losses.empty()) std::ranges::copy(losses, message.parts[0].begin());
  TRIREME_TRY(kernels.complete(kLosses));
  const double begin = now_s();
  TRIREME_TRY(kernels.compute({.kind = ActionKind::kUpdate}));
  const double seconds = now_s() - begin;
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
    const Samples& samples = found->second.samples[index_of(piece.stage)][index_of(model)];
    const size_t chunk = model == TimedModel::kBlocks ? piece.place : piece.chunk;
    return summary(samples[chunk][index_of(pass)], static_cast<size_t>(num_micro_batches_));
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
  return summary(updates_[index_of(stage)], 1);
}

}  // namespace trireme
