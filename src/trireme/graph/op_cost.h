// What a node costs for given sizes: flops by its rule, bytes of its values.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/graph/graph.h"

namespace trireme {

// Flops of one forward pass of the node. REQUIRES: `symbols` binds every symbol of its types.
[[nodiscard]] Result<double> node_flops(const Graph& graph, const Node& node,
                                        const SymbolValues& symbols);
[[nodiscard]] Result<int64_t> value_bytes(const Graph& graph, ValueId id,
                                          const SymbolValues& symbols);
[[nodiscard]] Result<std::vector<int64_t>> concrete_sizes(const std::vector<SymExpr>& sizes,
                                                          const SymbolValues& symbols);

}  // namespace trireme
