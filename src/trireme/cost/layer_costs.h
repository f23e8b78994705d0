// LayerCosts: what the layers of a model take one by one, for what looks into a pass: gradients
// leave layer by layer, and the next forward needs them so.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/cost/step_costs.h"

namespace trireme {

struct LayerCosts {
  SimTime forward = 0;   // of a micro-batch
  SimTime backward = 0;  // the same
  int64_t gradient_bytes = 0;
  // Of an embedding table, the rows that a replica's batch touches, as bytes: those that the next
  // batch reads, and those that it does not. Both 0: a gradient like others.
  int64_t prior_row_bytes = 0;
  int64_t delayed_row_bytes = 0;
  bool operator==(const LayerCosts&) const = default;
};

// By stage and chunk, in the order of the forward.
using StepLayers = std::vector<std::vector<std::vector<LayerCosts>>>;

// Where nothing but buckets is known: a layer a bucket, the last one first, with as much of the
// time as each other; chunks have the same. One layer without a gradient where there is no bucket.
[[nodiscard]] StepLayers step_layers_of_buckets(const StepCosts& costs);

}  // namespace trireme
