// What a step of a plan would take and hold: its schedule, in simulated time, with what is known of
// the machines. `trireme simulate MODEL.pt2` and `trireme train --predict` have the same answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"
#include "trireme/cluster/cluster.h"
#include "trireme/cost/layer_costs.h"
#include "trireme/cost/step_costs.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/plan.h"
#include "trireme/schedule/schedule.h"
#include "trireme/sim/simulate.h"
#include "trireme/torch/optimizer_options.h"

namespace trireme {

// Of --cluster, verified; where there is none, this machine with as many devices as ranks, and a
// sentence that says so in `notes`.
[[nodiscard]] Result<Cluster> choose_cluster(const std::string& path, int64_t num_ranks,
                                             std::vector<std::string>& notes);

struct PredictionRequest {
  PredictionSources sources;
  OptimizerOptions optimizer;
  int64_t micro_batch = 1;  // samples
  bool clips_norm = false;
  int32_t threads = 1;  // a rank
  LinkSharing sharing = LinkSharing::kMaxMinFair;
  bool wants_layers = false;
};

// All that the simulator needs.
struct Prediction {
  Cluster cluster;
  StepCosts costs;
  StepLayers layers;  // of an archive only where the request wants them
  Schedule schedule;
  std::vector<int32_t> extra_warm_ups;  // see ScheduleOptions
  std::vector<std::string> notes;       // where the costs come from, a sentence each
};

// The schedule is that of a step of `trireme train` with full micro-batches. Errors: a file that
// does not fit; ranks with devices of several kinds.
[[nodiscard]] Result<Prediction> prepare_prediction(const Graph& graph, const Plan& plan,
                                                    const PredictionRequest& request);

// The steps of a run that nothing interrupts, all of them like this one; where steps overlap, the
// first and the last lack what would be before and after. REQUIRES: a step at least.
[[nodiscard]] Result<std::vector<Schedule>> run_of(const Prediction& prediction, int32_t num_steps);
// A step between two others where steps overlap, by the default policy of communication; else the
// step itself.
[[nodiscard]] Result<Schedule> middle_step(const Prediction& prediction);

// A step, simulated. Of a schedule whose steps overlap it is one between others, in a timeline of
// several.
[[nodiscard]] Result<Simulation> simulate_step(const Prediction& prediction,
                                               const SimOptions& options);

// The step with these; see ScheduleOptions. Error: it cannot have them.
[[nodiscard]] Status set_extra_warm_ups(Prediction& prediction, std::vector<int32_t> extra);

// The extra warm-ups by hop with which a step takes the least time, each of which is worth
// more than a hundredth of it, and whose micro-batches fit into the memory of the devices and are
// as many as the step has. REQUIRES: a schedule that can have them, of two stages at least.
[[nodiscard]] Result<std::vector<int32_t>> find_extra_warm_ups(Prediction prediction,
                                                               const SimOptions& options);

// A step of the plan, simulated.
struct StepPrediction {
  double step_s = 0;
  std::vector<int64_t> peak_bytes;  // by rank
  std::vector<std::string> notes;
};
[[nodiscard]] Result<StepPrediction> predict_step(const Graph& graph, const Plan& plan,
                                                  const PredictionRequest& request);

}  // namespace trireme
