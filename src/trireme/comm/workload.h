// Workload: the compute tasks and the transfers of one training step, which repeats.
//
// A device runs its tasks in their order, step after step. A transfer is ready when the task that
// makes it has ended, and the task that needs it starts no earlier than it has arrived: that of the
// same step, or of a later one. So a plain data-parallel step of two layers is
//
//   device 0:  F0 F1 B1 B0 | F0 F1 B1 B0 | ...
//                    |  '----^  |                 the gradient of layer 0, distance 1
//                    '--------- '--^              that of layer 1
//
// Replicas do the same at the same time, so one stands for all. A pipeline has a device a stage.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/base/sim_time.h"
#include "trireme/comm/transfer.h"
#include "trireme/cost/layer_costs.h"

namespace trireme {

struct Workload {
  std::vector<std::vector<SimTime>> tasks;  // by device: how long each takes
  std::vector<Route> routes;
  std::vector<Transfer> transfers;
  int32_t num_links = 0;
  bool operator==(const Workload&) const = default;
};

// Every index is in its range, times and bytes are not negative, gradients of a device have one
// route and a distance of at least 1, and the tasks can all run.
[[nodiscard]] Status verify_workload(const Workload& workload);

// The transfers of a layer's gradient, whose ends and route are those of `transfer`: one; or, where
// the rows of a table travel in less time than the table, that and two for the rows, of which those
// that the next batch does not read have a step longer.
void add_gradient(Workload& workload, const LayerCosts& layer, Transfer transfer);

// A data-parallel step of one micro-batch over one route.
[[nodiscard]] Workload chain_workload(const std::vector<LayerCosts>& layers, const Route& route);

}  // namespace trireme
