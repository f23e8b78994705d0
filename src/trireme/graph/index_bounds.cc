#include "trireme/graph/index_bounds.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

// An operator that looks up `index` in `table`, in the dim of `dim`: an argument's name, or the
// dim itself.
struct Lookup {
  std::string_view op;
  std::string_view index;
  std::string_view table;
  std::string_view dim_argument = "";
  size_t dim = 0;
};
constexpr std::array kLookups = {
    Lookup{"embedding", "indices", "weight"},
    Lookup{"embedding_bag", "indices", "weight"},
    Lookup{"cross_entropy_loss", "target", "self", "", 1},
    Lookup{"nll_loss", "target", "self", "", 1},
    Lookup{"nll_loss_nd", "target", "self", "", 1},
    Lookup{"nll_loss2d", "target", "self", "", 1},
    Lookup{"index_select", "index", "self", "dim"},
    Lookup{"gather", "index", "self", "dim"},
};

const ValueId* tensor_of(const Node& node, std::string_view name) {
  const Argument* argument = find_argument(node, name);
  return argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
}

// The size of the table where it is known without the batch.
std::optional<int64_t> table_size(const Graph& graph, const Node& node, const Lookup& lookup) {
  const ValueId* table = tensor_of(node, lookup.table);
  if (table == nullptr) return std::nullopt;
  const std::vector<SymExpr>& sizes = graph.values[table->value].type.sizes;
  auto dim = static_cast<int64_t>(lookup.dim);
  if (!lookup.dim_argument.empty()) {
    const Argument* given = find_argument(node, lookup.dim_argument);
    const auto* number = given == nullptr ? nullptr : std::get_if<SymExpr>(given);
    if (number == nullptr || !number->is_integer()) return std::nullopt;
    dim = number->integer < 0 ? number->integer + static_cast<int64_t>(sizes.size())
                              : number->integer;
  }
  // The logits of one sample alone have their classes in dim 0.
  if (lookup.dim_argument.empty()) dim = std::min(dim, static_cast<int64_t>(sizes.size()) - 1);
  if (dim < 0 || dim >= static_cast<int64_t>(sizes.size())) return std::nullopt;
  const SymExpr& size = sizes[static_cast<size_t>(dim)];
  return size.is_integer() ? std::optional(size.integer) : std::nullopt;
}

// Whose results have the numbers of their first operand.
bool keeps_numbers(const Node& node) {
  const OpRule* rule = find_op_rule(node.op);
  return rule != nullptr && (rule->kind == OpKind::kShape || rule->alias == AliasKind::kView);
}

}  // namespace

std::vector<std::optional<int64_t>> index_bounds(const Graph& graph) {
  // By value: the input whose numbers it has; -1: none.
  std::vector<int32_t> origin(graph.values.size(), -1);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].kind != GraphInput::Kind::kUser) continue;
    origin[graph.inputs[i].value.value] = static_cast<int32_t>(i);
  }
  std::vector<std::optional<int64_t>> bounds(graph.inputs.size());
  for (const Node& node : graph.nodes) {
    const std::vector<ValueId> read = operands(node);
    if (!read.empty() && keeps_numbers(node)) {
      for (const ValueId made : results(node)) origin[made.value] = origin[read[0].value];
    }
    for (const Lookup& lookup : kLookups) {
      if (lookup.op != base_name(node.op)) continue;
      const ValueId* index = tensor_of(node, lookup.index);
      const int32_t input = index == nullptr ? -1 : origin[index->value];
      if (input < 0) continue;
      const std::optional<int64_t> size = table_size(graph, node, lookup);
      if (!size.has_value()) continue;
      std::optional<int64_t>& bound = bounds[static_cast<size_t>(input)];
      bound = std::min(bound.value_or(*size), *size);
    }
  }
  return bounds;
}

}  // namespace trireme
