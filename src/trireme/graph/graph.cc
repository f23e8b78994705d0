#include "trireme/graph/graph.h"

#include <algorithm>
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

std::string describe_node(const Node& node) {
  return node.module.empty() ? node.op : fmt::format("{} of module '{}'", node.op, node.module);
}

const Argument* find_argument(const Node& node, std::string_view name) {
  for (const NamedArgument& argument : node.arguments) {
    if (argument.name == name) return &argument.value;
  }
  return nullptr;
}

namespace {

// The sizes of the inputs that decide what the batch is.
std::vector<const std::vector<SymExpr>*> batched_sizes(const Graph& graph) {
  std::vector<const std::vector<SymExpr>*> inputs;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kUser || !input.offsets.empty()) continue;
    const std::vector<SymExpr>& sizes = graph.values[input.value.value].type.sizes;
    const bool is_fixed = std::all_of(sizes.begin(), sizes.end(),
                                      [](const SymExpr& size) { return size.is_integer(); });
    if (!is_fixed) inputs.push_back(&sizes);
  }
  return inputs;
}

// Offsets may have one entry more than samples: the end of the last one.
std::set<std::string> symbols_of_dim(const SymExpr& size) {
  std::set<std::string> symbols;
  const bool is_one_more = size.kind == SymExpr::Kind::kCall && size.name == "add" &&
                           size.operands.size() == 2 &&
                           (size.operands[0] == SymExpr(1) || size.operands[1] == SymExpr(1));
  if (size.is_symbol() || is_one_more) collect_symbols(size, symbols);
  return symbols;
}

}  // namespace

std::optional<std::string> batch_symbol(const Graph& graph) {
  if (!graph.batch.empty()) return graph.batch;
  std::set<std::string> in_dim_0;
  std::set<std::string> all;
  bool is_first = true;
  for (const std::vector<SymExpr>* sizes : batched_sizes(graph)) {
    for (const SymExpr& size : *sizes) collect_symbols(size, all);
    std::set<std::string> first = symbols_of_dim(sizes->front());
    if (is_first) {
      in_dim_0 = std::move(first);
      is_first = false;
      continue;
    }
    std::erase_if(in_dim_0, [&](const std::string& symbol) { return !first.contains(symbol); });
  }
  if (in_dim_0.size() == 1) return *in_dim_0.begin();
  // Of several, one that the inputs have in common may as well be the length of a sequence.
  if (all.size() == 1) return *all.begin();
  return std::nullopt;
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
        return Error{fmt::format("a {} reads a value before it is made", describe_node(node))};
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
