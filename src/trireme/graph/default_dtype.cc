#include "trireme/graph/default_dtype.h"

#include <algorithm>

namespace trireme {

DType default_dtype(const Graph& graph) {
  const auto is_floating = [&](ValueId id) {
    return dtype_info(graph.values[id.value].type.dtype).is_floating;
  };
  for (const Node& node : graph.nodes) {
    const std::vector<ValueId> read = operands(node);
    if (std::any_of(read.begin(), read.end(), is_floating)) continue;
    const bool names_dtype =
        std::any_of(node.arguments.begin(), node.arguments.end(),
                    [](const NamedArgument& a) { return std::holds_alternative<DType>(a.value); });
    if (names_dtype) continue;
    for (const ValueId id : results(node)) {
      const DType dtype = graph.values[id.value].type.dtype;
      const bool is_real = dtype == DType::kFloat64 || dtype == DType::kFloat32 ||
                           dtype == DType::kFloat16 || dtype == DType::kBFloat16;
      if (is_real) return dtype;
    }
  }
  return DType::kFloat32;
}

}  // namespace trireme
