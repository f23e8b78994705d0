// The layers of a few well-known models by their sizes: how many numbers each gradient has, and
// what share of the flops its pass takes. For comparing policies where no archive is at hand.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/cost/layer_costs.h"

namespace trireme {

struct KnownLayer {
  int64_t num_parameters = 0;
  double flops = 0;  // of a forward and sample, a multiply-add is two
  // Of an embedding table, the numbers of the rows that a batch touches (LayerCosts).
  int64_t prior_row_numbers = 0;
  int64_t delayed_row_numbers = 0;
};

struct KnownModel {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  std::vector<KnownLayer> (*layers)();  // in the order of the forward
};

[[nodiscard]] std::span<const KnownModel> known_models();

// Gradients have 4 bytes a number. A backward takes twice its forward, and both of all layers
// `compute` together, in proportion to flops; what has next to none is not free: a layer counts
// with a thousandth of the mean at least.
[[nodiscard]] std::vector<LayerCosts> layer_costs(const std::vector<KnownLayer>& layers,
                                                  SimTime compute);

}  // namespace trireme
