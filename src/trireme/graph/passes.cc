#include "trireme/graph/passes.h"

#include <algorithm>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

// Keeps the values for which `is_kept`, and renumbers every reference.
void keep_values(Graph& graph, const std::vector<bool>& is_kept) {
  std::vector<ValueId> renumbered(graph.values.size());
  std::vector<Value> values;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (!is_kept[i]) continue;
    renumbered[i] = ValueId(static_cast<int64_t>(values.size()));
    values.push_back(std::move(graph.values[i]));
  }
  graph.values = std::move(values);
  const auto renumber = [&](ValueId& id) { id = renumbered[id.value]; };
  for (GraphInput& input : graph.inputs) renumber(input.value);
  for (Node& node : graph.nodes) {
    for (NamedArgument& argument : node.arguments) {
      if (auto* id = std::get_if<ValueId>(&argument.value)) renumber(*id);
      if (auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
        for (std::optional<ValueId>& id : *list) {
          if (id.has_value()) renumber(*id);
        }
      }
    }
    for (NodeOutput& output : node.outputs) {
      for (ValueId& id : output.values) renumber(id);
    }
  }
  renumber(graph.loss);
  if (auto* items = std::get_if<ValueId>(&graph.items)) renumber(*items);
}

void remove_nodes(Graph& graph, const std::vector<bool>& is_live) {
  std::vector<bool> is_kept(graph.values.size(), true);
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_live[i]) {
      nodes.push_back(std::move(graph.nodes[i]));
      continue;
    }
    for (ValueId id : results(graph.nodes[i])) is_kept[id.value] = false;
  }
  graph.nodes = std::move(nodes);
  keep_values(graph, is_kept);
}

// An operator of a library that we know nothing of may change what it reads.
bool is_opaque(const Node& node) { return !is_aten(node.op) && find_op_rule(node.op) == nullptr; }

}  // namespace

void remove_assertions(Graph& graph) {
  std::vector<bool> is_live;
  for (const Node& node : graph.nodes) {
    const std::string_view name = base_name(node.op);
    is_live.push_back(!name.starts_with("_assert_") && name != "sym_constrain_range" &&
                      name != "sym_constrain_range_for_size");
  }
  remove_nodes(graph, is_live);
}

void remove_dead_code(Graph& graph) {
  const std::vector<ValueId> roots = alias_roots(graph);
  std::vector<bool> is_read(graph.values.size(), false);
  // An in-place node matters when anything that shares memory with what it changes is read later,
  // or outlives the step (an input of the graph).
  std::vector<bool> is_memory_live(graph.values.size(), false);
  std::set<std::string> symbols;
  const auto read = [&](ValueId id) {
    is_read[id.value] = true;
    is_memory_live[roots[id.value].value] = true;
  };
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kUser)
      is_memory_live[roots[input.value.value].value] = true;
  }
  read(graph.loss);
  if (const auto* items = std::get_if<ValueId>(&graph.items)) read(*items);
  std::vector<bool> is_live(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const std::vector<ValueId> made = results(node);
    bool is_needed = is_opaque(node) || std::any_of(made.begin(), made.end(),
                                                    [&](ValueId id) { return is_read[id.value]; });
    for (ValueId id : written_values(node)) {
      is_needed = is_needed || is_memory_live[roots[id.value].value];
    }
    for (const NodeOutput& output : node.outputs) {
      is_needed = is_needed || (!output.symbol.empty() && symbols.contains(output.symbol));
    }
    if (!is_needed) continue;
    is_live[i] = true;
    for (ValueId id : operands(node)) read(id);
    symbols.merge(symbols_read(node));
    for (ValueId id : made) {
      for (const SymExpr& size : graph.values[id.value].type.sizes) collect_symbols(size, symbols);
    }
  }
  remove_nodes(graph, is_live);
}

}  // namespace trireme
