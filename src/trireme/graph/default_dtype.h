// The default dtype under which a model was exported.
#pragma once

#include "trireme/graph/graph.h"

namespace trireme {

// torch.set_default_dtype decides what torch.zeros(n), torch.arange(n) * 0.5 and the like are, and
// an archive does not say it: it shows in the results of nodes that neither read a floating-point
// tensor nor name a dtype. kFloat32 when there is no such node.
[[nodiscard]] DType default_dtype(const Graph& graph);

}  // namespace trireme
