#include "trireme/graph/op_cost.h"

#include <utility>

#include "trireme/graph/op_rules.h"

namespace trireme {

Result<std::vector<int64_t>> concrete_sizes(const std::vector<SymExpr>& sizes,
                                            const SymbolValues& symbols) {
  std::vector<int64_t> concrete;
  concrete.reserve(sizes.size());
  for (const SymExpr& size : sizes) {
    TRIREME_TRY(int64_t value, evaluate_integer(size, symbols));
    concrete.push_back(value);
  }
  return concrete;
}

Result<int64_t> value_bytes(const Graph& graph, ValueId id, const SymbolValues& symbols) {
  const TensorType& type = graph.values[id.value].type;
  TRIREME_TRY(std::vector<int64_t> sizes, concrete_sizes(type.sizes, symbols));
  int64_t bytes = dtype_info(type.dtype).size_bytes;
  for (const int64_t size : sizes) bytes *= size;
  return bytes;
}

namespace {

Result<double> bytes_moved(const Graph& graph, const Node& node, const SymbolValues& symbols) {
  double sum = 0;
  for (const std::vector<ValueId>& values : {operands(node), results(node)}) {
    for (const ValueId id : values) {
      TRIREME_TRY(const int64_t bytes, value_bytes(graph, id, symbols));
      sum += static_cast<double>(bytes);
    }
  }
  return sum;
}

}  // namespace

Result<double> node_flops(const Graph& graph, const Node& node, const SymbolValues& symbols) {
  const OpRule* rule = find_op_rule(node.op);
  if (rule == nullptr) return bytes_moved(graph, node, symbols);
  OpSizes sizes;
  const auto add_input = [&](const std::string& name, ValueId id) -> Status {
    TRIREME_TRY(std::vector<int64_t> concrete,
                concrete_sizes(graph.values[id.value].type.sizes, symbols));
    sizes.inputs[name].push_back(std::move(concrete));
    return Status();
  };
  for (const NamedArgument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument.value)) {
      TRIREME_TRY(add_input(argument.name, *id));
    }
    if (const auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
      for (const std::optional<ValueId>& id : *list) {
        if (id.has_value()) TRIREME_TRY(add_input(argument.name, *id));
      }
    }
  }
  for (ValueId id : results(node)) {
    TRIREME_TRY(std::vector<int64_t> concrete,
                concrete_sizes(graph.values[id.value].type.sizes, symbols));
    sizes.outputs.push_back(std::move(concrete));
  }
  return rule->flops(sizes);
}

}  // namespace trireme
