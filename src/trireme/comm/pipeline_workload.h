// pipeline_workload(): a Schedule, the layers of its stages and the routes between them -> the
// Workload that a step of it is.
//
// A device is a stage of the first replica; the others do the same. Its tasks are its passes. Two
// of a chunk are taken apart layer by layer: the last backward (or W) of a step, after which each
// layer's gradient is ready, and the first forward after the update. The update, too, is taken
// apart, by bytes: each layer's comes before the layer's forward where the model begins, since a
// policy may let it be there before those of others are; and all of them before the forward where
// that waits for activations anyway.
//
//   rank 0:  U.l0 F0.l0 U.l1 F0.l1 F1 B0 B1.l1 B1.l0        2 layers, 2 micro-batches
//
// Sums of tied parameters over stages, scalars and receives that are posted late are left out.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cluster/cluster.h"
#include "trireme/comm/workload.h"
#include "trireme/cost/step_costs.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

struct PipelineRoutes {
  std::vector<Route> sums;                                // of gradients, by stage
  std::map<std::pair<int32_t, int32_t>, Route> messages;  // from a stage to another
  int32_t num_links = 0;
  // Of their devices, by stage: a pass takes as much longer as the share is smaller than 1. No
  // share: all of the device.
  std::vector<double> shares = {};
};

// As the simulator sends (sim/simulate.h): sums in a ring of a stage's ranks, with the rate that
// the most crowded link leaves its hops, all at once; messages by their path, with the rate that
// those of all replicas at once leave. The latency of a hop is that of its links. Links are counted
// as they occur. REQUIRES: a verified cluster that has as many devices as the schedule has ranks.
[[nodiscard]] PipelineRoutes pipeline_routes(const Schedule& schedule, const Cluster& cluster);

// Error: layers of other stages or chunks than the schedule has, or a step that they do not make.
// REQUIRES: a verified training schedule, of steps that overlap one between others; costs of it.
[[nodiscard]] Result<Workload> pipeline_workload(const Schedule& schedule, const StepCosts& costs,
                                                 const StepLayers& layers,
                                                 const PipelineRoutes& routes);

}  // namespace trireme
