#include "trireme/graph/aliasing.h"

#include <numeric>
#include <optional>
#include <string_view>

namespace trireme {
namespace {

bool is_in_place(std::string_view name) { return without_in_place_mark(name) != name; }

std::optional<ValueId> tensor_argument(const Node& node, std::string_view name) {
  const Argument* given = find_argument(node, name);
  const auto* id = given == nullptr ? nullptr : std::get_if<ValueId>(given);
  return id == nullptr ? std::nullopt : std::optional(*id);
}

// The operand that an overload such as aten.div.out fills and returns.
std::optional<ValueId> filled_value(const Node& node) { return tensor_argument(node, "out"); }

}  // namespace

AliasKind alias_kind(const Node& node) {
  if (is_in_place(base_name(node.op))) return AliasKind::kInPlace;
  const OpRule* rule = find_op_rule(node.op);
  return rule == nullptr ? AliasKind::kUnknown : rule->alias;
}

std::vector<ValueId> written_values(const Node& node) {
  std::vector<ValueId> written;
  if (is_in_place(base_name(node.op))) {
    const std::vector<ValueId> read = operands(node);
    if (!read.empty()) written.push_back(read[0]);
  }
  if (const std::optional<ValueId> filled = filled_value(node)) written.push_back(*filled);
  if (without_in_place_mark(base_name(node.op)) == "rrelu_with_noise") {
    if (const std::optional<ValueId> noise = tensor_argument(node, "noise")) {
      written.push_back(*noise);
    }
  }
  if (base_name(node.op) == "batch_norm" || base_name(node.op) == "instance_norm") {
    const Argument* training = find_argument(node, "training");
    if (training == nullptr) training = find_argument(node, "use_input_stats");
    if (training != nullptr && std::get_if<bool>(training) != nullptr &&
        std::get<bool>(*training)) {
      for (const std::string_view name : {"running_mean", "running_var"}) {
        if (const std::optional<ValueId> id = tensor_argument(node, name)) written.push_back(*id);
      }
    }
  }
  return written;
}

std::vector<ValueId> alias_roots(const Graph& graph) {
  std::vector<int32_t> parent(graph.values.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t value) {
    while (parent[value] != value) value = parent[value] = parent[parent[value]];
    return value;
  };
  for (const Node& node : graph.nodes) {
    if (const std::optional<ValueId> filled = filled_value(node)) {
      for (ValueId made : results(node)) parent[root(made.value)] = root(filled->value);
    }
    const AliasKind kind = alias_kind(node);
    if (kind == AliasKind::kFresh) continue;
    const std::vector<ValueId> read = operands(node);
    for (size_t i = 0; i < read.size(); ++i) {
      if (i > 0 && kind != AliasKind::kUnknown) break;
      for (ValueId made : results(node)) parent[root(made.value)] = root(read[i].value);
    }
  }
  std::vector<ValueId> roots;
  roots.reserve(parent.size());
  for (size_t i = 0; i < parent.size(); ++i) roots.emplace_back(root(static_cast<int32_t>(i)));
  return roots;
}

}  // namespace trireme
