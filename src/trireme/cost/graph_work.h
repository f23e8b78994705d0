// GraphWork: what each node of a Graph does on a device, pass by pass, for the analytic model.
//
// Flops of the forward pass are those of the operator's rule, bytes those that it reads and makes.
// Of a product (linear, convolution, attention), the gradient of the input costs as many flops as
// the forward, that of a parameter as many again. Of anything else, a backward moves the bytes that
// it saved, those of the results' gradients and those of the operands' gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/cost/device_model.h"
#include "trireme/cost/profile.h"
#include "trireme/cost/saved_values.h"
#include "trireme/graph/graph.h"

namespace trireme {

struct NodeWork {
  OperatorWork forward;
  // Empty where the node has no such gradient. What a schedule calls W are the gradients of
  // parameters of products and embeddings; those of others are part of I (direct_gradients.h).
  std::optional<OperatorWork> input_gradient;
  std::optional<OperatorWork> weight_gradient;
};

// By node. Sizes are those of `symbols`.
[[nodiscard]] std::vector<NodeWork> graph_work(const Graph& graph, const SymbolValues& symbols,
                                               const SavedValues& saved);

// Of these nodes, one after the other.
[[nodiscard]] double seconds_of(const DeviceModel& device, const std::vector<NodeWork>& works,
                                BlockPass pass, std::span<const NodeId> nodes);

// The update of parameters with a gradient: indices into Graph::inputs, each once. `num_states`:
// tensors of the optimizer a parameter, such as 2 of AdamW.
[[nodiscard]] OperatorWork update_work(const Graph& graph, std::span<const int32_t> inputs,
                                       int32_t num_states);

}  // namespace trireme
