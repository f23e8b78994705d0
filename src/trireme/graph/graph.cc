#include "trireme/graph/graph.h"

#include <set>

#include <fmt/format.h>

namespace trireme {

std::vector<ValueId> operands(const Node& node) {
  std::vector<ValueId> ids;
  for (const NamedArgument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument.value)) ids.push_back(*id);
    if (const auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
      for (const std::optional<ValueId>& id : *list) {
        if (id.has_value()) ids.push_back(*id);
      }
    }
  }
  return ids;
}

std::vector<ValueId> results(const Node& node) {
  std::vector<ValueId> ids;
  for (const NodeOutput& output : node.outputs) {
    ids.insert(ids.end(), output.values.begin(), output.values.end());
  }
  return ids;
}

std::set<std::string> symbols_read(const Node& node) {
  std::set<std::string> symbols;
  for (const NamedArgument& argument : node.arguments) {
    if (const auto* expression = std::get_if<SymExpr>(&argument.value)) {
      collect_symbols(*expression, symbols);
    }
    if (const auto* list = std::get_if<std::vector<SymExpr>>(&argument.value)) {
      for (const SymExpr& expression : *list) collect_symbols(expression, symbols);
    }
  }
  return symbols;
}

const Argument* find_argument(const Node& node, std::string_view name) {
  for (const NamedArgument& argument : node.arguments) {
    if (argument.name == name) return &argument.value;
  }
  return nullptr;
}

std::optional<std::string> batch_symbol(const Graph& graph) {
  std::optional<std::string> symbol;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kUser) continue;
    const std::vector<SymExpr>& sizes = graph.values[input.value.value].type.sizes;
    if (sizes.empty() || !sizes[0].is_symbol()) return std::nullopt;
    if (symbol.has_value() && *symbol != sizes[0].name) return std::nullopt;
    symbol = sizes[0].name;
  }
  return symbol;
}

std::vector<SymExpr> contiguous_strides(const std::vector<SymExpr>& sizes) {
  std::vector<SymExpr> strides(sizes.size());
  SymExpr stride(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    const SymExpr& size = sizes[i];
    if (size != SymExpr(0)) stride = SymExpr::of_call("mul", {stride, size});
  }
  return strides;
}

namespace {

Status verify_values(const Graph& graph) {
  std::set<std::string> names;
  for (const Value& value : graph.values) {
    if (!names.insert(value.name).second) {
      return Error{fmt::format("two values are called %{}", value.name)};
    }
    if (value.type.strides.size() != value.type.sizes.size()) {
      return Error{fmt::format("%{} has {} sizes but {} strides", value.name,
                               value.type.sizes.size(), value.type.strides.size())};
    }
  }
  return Status();
}

Status verify_regions(const Graph& graph) {
  if (graph.regions.empty() || graph.regions[0].kind != Region::Kind::kRoot) {
    return Error{"region 0 is not the whole graph"};
  }
  for (size_t i = 1; i < graph.regions.size(); ++i) {
    const int32_t parent = graph.regions[i].parent.value;
    if (parent < 0 || parent >= static_cast<int32_t>(i)) {
      return Error{
          fmt::format("region {} lies in region {}, which does not come before it", i, parent)};
    }
  }
  return Status();
}

}  // namespace

Status verify_graph(const Graph& graph) {
  TRIREME_TRY(verify_values(graph));
  TRIREME_TRY(verify_regions(graph));
  std::vector<bool> is_defined(graph.values.size(), false);
  const auto define = [&](ValueId id, std::string_view by) -> Status {
    if (!id.is_valid() || id.value >= static_cast<int32_t>(graph.values.size())) {
      return Error{fmt::format("{} defines a value that is not in the graph", by)};
    }
    if (is_defined[id.value]) {
      return Error{fmt::format("%{} is defined twice", graph.values[id.value].name)};
    }
    is_defined[id.value] = true;
    return Status();
  };
  for (const GraphInput& input : graph.inputs) {
    if (input.names.empty()) return Error{"an input has no name"};
    TRIREME_TRY(define(input.value, "an input"));
  }
  for (const Node& node : graph.nodes) {
    if (node.region.value < 0 || node.region.value >= static_cast<int32_t>(graph.regions.size())) {
      return Error{
          fmt::format("a {} lies in region {}, which does not exist", node.op, node.region.value)};
    }
    for (ValueId id : operands(node)) {
      if (id.value < 0 || id.value >= static_cast<int32_t>(graph.values.size()) ||
          !is_defined[id.value]) {
        return Error{fmt::format("a {} of module '{}' reads a value before it is made", node.op,
                                 node.module)};
      }
    }
    for (ValueId id : results(node)) TRIREME_TRY(define(id, node.op));
  }
  if (!graph.loss.is_valid() || !is_defined[graph.loss.value]) {
    return Error{"the graph returns no loss"};
  }
  const Value& loss = graph.values[graph.loss.value];
  if (!loss.type.sizes.empty() || !dtype_info(loss.type.dtype).is_floating) {
    return Error{fmt::format("the loss %{} is {}, not a floating-point scalar", loss.name,
                             to_text(loss.type))};
  }
  if (const auto* items = std::get_if<ValueId>(&graph.items)) {
    if (!items->is_valid() || !is_defined[items->value]) {
      return Error{"the graph returns a number of items that nothing makes"};
    }
  }
  return Status();
}

}  // namespace trireme
