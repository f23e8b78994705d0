// index_bounds(): below which numbers the integers of a batch must lie, as far as the graph says:
// tokens below the rows of their embedding, targets below the classes of their loss. For inputs
// that are made up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/graph/graph.h"

namespace trireme {

// By index into Graph::inputs: every number from 0 to below the bound can be looked up where the
// input, or a view or part of it, is an index. nullopt: nothing looks anything up by it.
[[nodiscard]] std::vector<std::optional<int64_t>> index_bounds(const Graph& graph);

}  // namespace trireme
