#include "trireme/worker/profile.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/cli/launch_profile.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cluster/this_host.h"
#include "trireme/cost/graph_work.h"
#include "trireme/cost/step_costs_of.h"
#include "trireme/import/output_path.h"
#include "trireme/plan/gradients.h"
#include "trireme/worker/block_timer.h"
#include "trireme/worker/load_processes.h"
#include "trireme/worker/pinning.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::array kSteps = {TimedStep::kWhole, TimedStep::kSplit, TimedStep::kRecompute};
constexpr std::array kModels = {TimedModel::kBlocks, TimedModel::kChunks};

// After these only what the plan does is timed, where there is one.
constexpr int64_t kFullRounds = 2;

struct Rounds {
  int64_t steps = 0;
  int64_t steps_per_round = 0;  // of the first ones
  double seconds = 0;
};

struct TimedRun {
  int32_t stage = 0;
  TimedModel model{};
  TimedStep kind{};
  int64_t micro_batch = 0;
};

// Those of a round, such that few are of another stage, model or size than the one before.
std::vector<TimedRun> runs_of_round(int32_t num_stages, const ProfileRequest& request) {
  std::vector<TimedRun> runs;
  for (const int64_t micro_batch : request.micro_batches) {
    for (int32_t stage = 0; stage < num_stages; ++stage) {
      for (const TimedModel model : kModels) {
        for (const TimedStep kind : kSteps) runs.push_back({stage, model, kind, micro_batch});
      }
    }
  }
  return runs;
}

Result<Rounds> measure(BlockTimer& timer, const Plan& plan, const ProfileRequest& request,
                       const ProfileRun& run) {
  const int32_t num_stages = plan.pp;
  std::vector<TimedRun> runs = runs_of_round(num_stages, request);
  Rounds rounds;
  rounds.steps_per_round = static_cast<int64_t>(runs.size());
  // In the first round what is needed most comes first: F and B of all blocks in one size, without
  // which there is no profile, however short the time.
  std::ranges::stable_sort(runs, {}, &TimedRun::kind);
  const auto num_needed = static_cast<int64_t>(kModels.size()) * num_stages;
  const Clock::time_point begin = Clock::now();
  for (int64_t round = 1;; ++round) {
    for (const TimedRun& each : runs) {
      TRIREME_TRY(timer.run(each.stage, each.model, each.kind, each.micro_batch));
      ++rounds.steps;
      rounds.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const bool may_end = !run.is_load && rounds.steps >= num_needed;
      if (may_end && rounds.seconds >= request.budget_s) return rounds;
      run.show_progress(fmt::format("profile: round {}, {:.0f} s of {:g} s", round, rounds.seconds,
                                    request.budget_s));
    }
    runs = runs_of_round(num_stages, request);
    if (round < kFullRounds || plan.stages.size() == 1) continue;
    std::erase_if(runs,
                  [&](const TimedRun& each) { return !timer.is_of_plan(each.stage, each.kind); });
  }
}

// Of what a stage holds, each parameter once, though several blocks may use it.
double analytic_update_seconds(const RunSetup& setup, const Stage& stage,
                               const AnalyticOptions& options) {
  const std::vector<bool> gets = gets_gradient(setup.graph);
  std::vector<int32_t> inputs;
  for (const int32_t input : stage.inputs) {
    if (gets[input]) inputs.push_back(input);
  }
  const OperatorWork work = update_work(setup.graph, inputs, options.num_optimizer_states);
  return pass_seconds(options.device, {&work, 1});
}

// How many times as long as by the analytic model the update of a stage takes, and its spread.
std::vector<std::optional<PassSeconds>> update_ratios(const BlockTimer& timer,
                                                      const RunSetup& setup,
                                                      const AnalyticOptions& options) {
  std::vector<std::optional<PassSeconds>> ratios;
  for (const Stage& stage : setup.partition.stages) {
    std::optional<PassSeconds>& ratio =
        ratios.emplace_back(timer.update_seconds(static_cast<int32_t>(ratios.size())));
    if (!ratio.has_value()) continue;
    const double analytic = analytic_update_seconds(setup, stage, options);
    ratio->seconds = analytic > 0 ? ratio->seconds / analytic : 0;
    ratio->spread = analytic > 0 ? ratio->spread / analytic : 0;
  }
  return ratios;
}

// Of the parts of a block that different stages hold, the mean.
std::optional<PassSeconds> block_update(const std::vector<std::optional<PassSeconds>>& ratios,
                                        std::span<const int32_t> stages, double analytic) {
  PassSeconds mean{.seconds = 0, .spread = 0};
  for (const int32_t stage : stages) {
    const std::optional<PassSeconds>& ratio = ratios[static_cast<size_t>(stage)];
    if (!ratio.has_value()) return std::nullopt;
    const double share = analytic / static_cast<double>(stages.size());
    mean.seconds += ratio->seconds * share;
    mean.spread += ratio->spread * share;
  }
  return mean;
}

// What was measured, and only that, in the blocks of `analytic`.
Profile measured_profile(const BlockTimer& timer, const ProfileRequest& request, Profile analytic,
                         const RunSetup& setup, const AnalyticOptions& options) {
  const std::vector<std::optional<PassSeconds>> ratios = update_ratios(timer, setup, options);
  for (size_t b = 0; b < analytic.blocks.size(); ++b) {
    BlockProfile& block = analytic.blocks[b];
    // A stage updates all that it holds at once; each block has its part by the analytic model.
    block.update = block_update(ratios, timer.stages_of(b), block.update->seconds);
    block.sizes.clear();
    for (const int64_t micro_batch : request.micro_batches) {
      BlockSize size{.micro_batch = micro_batch};
      for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
        size.passes[pass] = timer.seconds(micro_batch, b, static_cast<BlockPass>(pass));
      }
      block.sizes.push_back(std::move(size));
    }
  }
  analytic.device = options.device_name;
  return analytic;
}

// The times of a micro-batch through all blocks.
double whole_seconds(const Profile& profile, int64_t micro_batch) {
  double seconds = 0;
  for (const BlockProfile& block : profile.blocks) {
    for (const BlockPass pass : {BlockPass::kForward, BlockPass::kBackward}) {
      seconds += seconds_at(block, pass, micro_batch).value_or(0);
    }
  }
  return seconds;
}

std::string summary_text(const Profile& profile, const ProfileRequest& request,
                         const Rounds& rounds) {
  std::string text = fmt::format("profile: {} blocks, {} steps in {:.1f} s\n",
                                 profile.blocks.size(), rounds.steps, rounds.seconds);
  for (const int64_t micro_batch : request.micro_batches) {
    text += fmt::format("  forward and backward of {} {}: {:.3g} ms\n", micro_batch,
                        micro_batch == 1 ? "sample" : "samples",
                        1e3 * whole_seconds(profile, micro_batch));
  }
  // Of a round, the first warms up.
  if (rounds.steps >= 2 * rounds.steps_per_round) return text;
  return text + fmt::format(
                    "  the time sufficed for {} of the {} steps of a round and one that "
                    "warms up; what was not measured is analytic: give more by --budget\n",
                    rounds.steps, 2 * rounds.steps_per_round);
}

// For people, behind the name of the device.
std::string how_measured(const ProfileRequest& request, const Plan& plan) {
  std::string text =
      fmt::format(", {} {}", request.run.threads, request.run.threads == 1 ? "thread" : "threads");
  if (request.concurrent > 1) text += fmt::format(", {} at once", request.concurrent);
  if (request.takes_processor_time) text += ", processor time";
  if (plan.stages.size() > 1)
    text += fmt::format(", each of {} stages by {}", plan.pp, plan.schedule);
  return text;
}

}  // namespace

Result<ProfileOutcome> run_profile(ProfileRequest request, const ProfileRun& run) {
  if (!run.is_load) TRIREME_TRY(check_profile_output(request));
  TRIREME_TRY(const RunSetup setup, make_profile_setup(request));
  const ThisHost host = this_host(1);
  TRIREME_TRY(AnalyticOptions options,
              analytic_options(setup.graph, host.cluster.device_kinds[0],
                               num_optimizer_states(request.run.optimizer)));
  options.device_name = host.processor + how_measured(request, setup.plan);
  TRIREME_TRY(const Profile analytic,
              analytic_profile(setup.graph, request.run.model, request.micro_batches, options));
  const auto measured = [&]() -> Result<ProfileOutcome> {
    TRIREME_TRY(const std::unique_ptr<BlockTimer> timer,
                BlockTimer::make(setup, request.takes_processor_time));
    TRIREME_TRY(const LoadProcesses load,
                LoadProcesses::start(run.is_load ? 0 : request.concurrent - 1));
    if (request.run.pins) TRIREME_TRY(pin_to_cores(run.place, request.run.threads));
    TRIREME_TRY(const Rounds rounds, measure(*timer, setup.plan, request, run));
    TRIREME_TRY(
        const Profile profile,
        fill_profile(measured_profile(*timer, request, analytic, setup, options), analytic));
    ProfileOutcome outcome{.summary = summary_text(profile, request, rounds),
                           .text = to_text(profile)};
    if (request.output.empty()) return outcome;
    TRIREME_TRY(write_whole(request.output, outcome.text));
    outcome.text.clear();
    return outcome;
  };
  Result<ProfileOutcome> outcome = measured();
  if (!outcome.ok()) return ProfileOutcome{.failure = outcome.error().message};
  return outcome;
}

}  // namespace trireme
