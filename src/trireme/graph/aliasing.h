// Which values share memory, and which a node changes: what may not be reordered, run twice or cut.
#pragma once

#include <vector>

#include "trireme/graph/graph.h"
#include "trireme/graph/op_rules.h"

namespace trireme {

[[nodiscard]] AliasKind alias_kind(const Node& node);
// The tensors that the node changes: the operand of an in-place operator, `out` of the overloads
// that have it, the noise of rrelu_with_noise, and the running statistics of a batch_norm in
// training, which no schema marks.
[[nodiscard]] std::vector<ValueId> written_values(const Node& node);

// alias_roots[v]: one representative of the set of values that may share memory with v.
[[nodiscard]] std::vector<ValueId> alias_roots(const Graph& graph);

}  // namespace trireme
