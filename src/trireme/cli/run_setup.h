// RunSetup: everything a run needs that is not a tensor, made from a request. The command line
// makes it to refuse a wrong request before any rank starts; each rank makes the same one for
// itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/eval_model.h"
#include "trireme/cli/learning_rate.h"
#include "trireme/cli/predict.h"
#include "trireme/cli/request.h"
#include "trireme/data/batches.h"
#include "trireme/data/feed.h"
#include "trireme/import/archive.h"
#include "trireme/import/initial_weights.h"
#include "trireme/plan/partition.h"
#include "trireme/plan/plan.h"
#include "trireme/schedule/builders.h"

namespace trireme {

// `trireme rehearse`: the step, and what the simulator says of it.
struct Rehearsal {
  Prediction step;
  SimTime simulated_step = 0;
  std::vector<SimTime> simulated_compute;  // by rank
};

struct RunSetup {
  RunRequest request;
  std::unique_ptr<Archive> archive;
  Graph graph;  // the archive's, with frozen parameters and jagged inputs marked
  Plan plan;
  Partition partition;
  std::optional<InitialWeights> initial;  // --init
  std::optional<EvalModel> eval_model;    // --eval-model; else `graph` evaluates, too
  std::unique_ptr<Feed> data;
  std::unique_ptr<Feed> eval_data;  // may be null
  std::optional<Batches> batches;
  std::optional<Batches> eval_batches;
  int64_t num_steps = 0;
  int64_t num_eval_batches = 0;
  LearningRate learning_rate;
  BucketOptions buckets;  // of the gradients of a training
  // What every schedule of the run has in common.
  ScheduleOptions schedule;
  std::optional<StepPrediction> prediction;  // --predict
  std::optional<Rehearsal> rehearsal;  // of it nothing above is there but request, plan and steps

  [[nodiscard]] const Graph& eval_graph() const {
    return eval_model.has_value() ? eval_model->graph : graph;
  }
  [[nodiscard]] const Partition& eval_partition() const {
    return eval_model.has_value() ? eval_model->partition : partition;
  }
  [[nodiscard]] int32_t num_ranks() const { return plan.pp * plan.dp; }
  [[nodiscard]] std::string describe_rank(int32_t rank) const;
  // Sentences for the user before the run.
  [[nodiscard]] std::vector<std::string> notes() const;
};

// `rank` leaves out the weights that only other ranks need: they may lie on other machines.
[[nodiscard]] Result<RunSetup> make_run_setup(const RunRequest& request,
                                              std::optional<int32_t> rank = {});

// Of a rehearsal; make_run_setup() makes it where the request is one.
[[nodiscard]] Result<RunSetup> make_rehearsal_setup(const RunRequest& request);

// Of a probe, the same: as many replicas of nothing as there are workers.
inline constexpr int32_t kProbeWorkers = 2;  // where --workers does not say, nor a launcher
[[nodiscard]] RunSetup make_probe_setup(const RunRequest& request);

// Of a profile: the stages of a plan, without replicas, its schedule, of three micro-batches at
// least where their number was not asked for, and the data; no weights are asked for. Fills in the
// sizes of micro-batches.
[[nodiscard]] Result<RunSetup> make_profile_setup(ProfileRequest& request);

// What the schedules of a plan have in common; micro-batches are left open. `buckets` are those of
// bucket_options().
[[nodiscard]] Result<ScheduleOptions> schedule_options(const Graph& graph, const Plan& plan,
                                                       const Partition& partition,
                                                       const BucketOptions& buckets,
                                                       bool is_training);

// Of a training step, and of the one before it, where they are others than the plan's.
struct ExtraWarmUps {
  std::vector<int32_t> own = {};
  std::vector<int32_t> found = {};
  int32_t least_look_ahead = 0;  // see ScheduleOptions
  auto operator<=>(const ExtraWarmUps&) const = default;
};

// The schedule of a step in which each replica has these numbers of micro-batches, at this place of
// an uninterrupted run.
enum class NormExchange : uint8_t { kNone, kSquaredNorms };
[[nodiscard]] Result<Schedule> step_schedule(const RunSetup& setup, bool is_training,
                                             std::vector<int32_t> num_micro_batches,
                                             NormExchange norms,
                                             StepPlace place = StepPlace::kAlone,
                                             const std::optional<ExtraWarmUps>& warm_ups = {});

}  // namespace trireme
