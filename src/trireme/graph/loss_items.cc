#include "trireme/graph/loss_items.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/op_rules.h"
#include "trireme/graph/passes.h"

namespace trireme {
namespace {

constexpr int64_t kMean = 1;            // of the argument `reduction`, torch's default
constexpr int64_t kIgnoreIndex = -100;  // torch's default

// A mean over class targets, made by nodes[node].
struct TargetMean {
  size_t node = 0;
  ValueId target;
  std::optional<ValueId> weight;  // of each class
  int64_t ignore_index = kIgnoreIndex;
};

template <typename T>
std::optional<T> argument(const Node& node, std::string_view name) {
  const Argument* found = find_argument(node, name);
  const T* value = found == nullptr ? nullptr : std::get_if<T>(found);
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

// nullopt: not a literal integer.
std::optional<int64_t> integer(const Node& node, std::string_view name, int64_t otherwise) {
  if (find_argument(node, name) == nullptr) return otherwise;
  const auto found = argument<SymExpr>(node, name);
  return found && found->is_integer() ? std::optional(found->integer) : std::nullopt;
}

bool is_one_element(const Value& value) {
  return std::all_of(value.type.sizes.begin(), value.type.sizes.end(),
                     [](const SymExpr& size) { return size == SymExpr(1); });
}

bool is_constant(const Node& node, std::string_view name) {
  const auto found = argument<SymExpr>(node, name);
  return found && (found->is_integer() || found->kind == SymExpr::Kind::kFloat);
}

// By value: whether it is computed from tensors of the user.
std::vector<bool> depends_on_batch(const Graph& graph) {
  std::vector<bool> depends(graph.values.size(), false);
  for (const GraphInput& input : graph.inputs) {
    depends[input.value.value] = input.kind == GraphInput::Kind::kUser;
  }
  for (const Node& node : graph.nodes) {
    const std::vector<ValueId> read = operands(node);
    if (std::none_of(read.begin(), read.end(), [&](ValueId id) { return depends[id.value]; })) {
      continue;
    }
    for (ValueId made : results(node)) depends[made.value] = true;
    for (ValueId written : written_values(node)) depends[written.value] = true;
  }
  return depends;
}

// The operand of whose mean over some items the node's result is the mean, too: itself, a multiple
// of it, or it with a term that is the same for every batch.
std::optional<ValueId> operand_of_same_items(const Graph& graph, const Node& node,
                                             const std::vector<bool>& depends) {
  constexpr std::array<std::string_view, 14> kSame = {
      "alias", "clone",     "contiguous", "flatten", "mean", "reshape",  "squeeze",
      "sum",   "unsqueeze", "to",         "view",    "neg",  "_to_copy", "type_as"};
  const std::string_view name = without_in_place_mark(base_name(node.op));
  const std::vector<ValueId> read = operands(node);
  const std::vector<ValueId> made = results(node);
  const auto is_one = [&](ValueId id) { return is_one_element(graph.values[id.value]); };
  if (read.empty() || made.size() != 1 || !is_aten(node.op) || !is_one(made[0]) ||
      !std::all_of(read.begin(), read.end(), is_one)) {
    return std::nullopt;
  }
  if (std::find(kSame.begin(), kSame.end(), name) != kSame.end()) return read[0];
  if (find_argument(node, "rounding_mode") != nullptr) return std::nullopt;
  if (name == "mul" || name == "div") {
    return is_constant(node, "other") ? std::optional(read[0]) : std::nullopt;
  }
  if (name != "add" && name != "sub") return std::nullopt;
  if (read.size() == 1) return is_constant(node, "other") ? std::optional(read[0]) : std::nullopt;
  if (depends[read[0].value] == depends[read[1].value]) return std::nullopt;
  return depends[read[0].value] ? read[0] : read[1];
}

std::optional<TargetMean> target_mean(const Graph& graph, size_t index) {
  const Node& node = graph.nodes[index];
  constexpr std::array<std::string_view, 4> kLosses = {"cross_entropy_loss", "nll_loss",
                                                       "nll_loss2d", "nll_loss_nd"};
  if (!is_aten(node.op) ||
      std::find(kLosses.begin(), kLosses.end(), base_name(node.op)) == kLosses.end()) {
    return std::nullopt;
  }
  const auto target = argument<ValueId>(node, "target");
  const auto ignore_index = integer(node, "ignore_index", kIgnoreIndex);
  if (integer(node, "reduction", kMean) != kMean || !target || !ignore_index) return std::nullopt;
  // Targets of floating point are probabilities, of which none is ignored.
  if (dtype_info(graph.values[target->value].type.dtype).is_floating) return std::nullopt;
  return TargetMean{.node = index,
                    .target = *target,
                    .weight = argument<ValueId>(node, "weight"),
                    .ignore_index = *ignore_index};
}

std::optional<TargetMean> find_target_mean(const Graph& graph) {
  const std::vector<ValueId> roots = alias_roots(graph);
  const std::vector<bool> depends = depends_on_batch(graph);
  ValueId value = graph.loss;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const std::vector<ValueId> made = results(node);
    if (std::find(made.begin(), made.end(), value) == made.end()) {
      // Memory of the loss that is changed by a node that is not on its way holds something else.
      for (ValueId written : written_values(node)) {
        if (roots[written.value] == roots[value.value]) return std::nullopt;
      }
      continue;
    }
    if (const auto found = target_mean(graph, i)) return found;
    const auto operand = operand_of_same_items(graph, node, depends);
    if (!operand) return std::nullopt;
    value = *operand;
  }
  return std::nullopt;
}

// Builds the nodes that count, to be put behind the loss.
class Counting {
 public:
  Counting(Graph& graph, RegionId region) : graph_(graph), region_(region) {
    for (const Value& value : graph_.values) names_.insert(value.name);
  }

  ValueId add(std::string op, std::vector<NamedArgument> arguments, DType dtype,
              const std::vector<SymExpr>& sizes) {
    std::string name = "items";
    for (int64_t i = 1; !names_.insert(name).second; ++i) name = fmt::format("items_{}", i);
    const ValueId made(static_cast<int64_t>(graph_.values.size()));
    graph_.values.push_back(
        {.name = std::move(name),
         .type = {.dtype = dtype, .sizes = sizes, .strides = contiguous_strides(sizes)}});
    nodes_.push_back({.op = std::move(op),
                      .arguments = std::move(arguments),
                      .outputs = {{.values = {made}}},
                      .region = region_});
    return made;
  }

  [[nodiscard]] std::vector<Node> take_nodes() { return std::move(nodes_); }

 private:
  Graph& graph_;
  RegionId region_;
  std::set<std::string> names_;
  std::vector<Node> nodes_;
};

// The node that makes a value; nullptr for an input.
const Node* producer(const Graph& graph, ValueId value) {
  for (const Node& node : graph.nodes) {
    const std::vector<ValueId> made = results(node);
    if (std::find(made.begin(), made.end(), value) != made.end()) return &node;
  }
  return nullptr;
}

const Node* operand_made_by(const Graph& graph, const Node& node, std::string_view name,
                            std::string_view op) {
  const auto value = argument<ValueId>(node, name);
  const Node* made_by = value ? producer(graph, *value) : nullptr;
  return made_by != nullptr && made_by->op == op ? made_by : nullptr;
}

}  // namespace

void derive_items(Graph& graph) {
  if (std::holds_alternative<ValueId>(graph.items)) return;
  if (const auto* given = std::get_if<SymExpr>(&graph.items)) {
    const std::optional<std::string> batch = batch_symbol(graph);
    if (!batch || *given != SymExpr::of_symbol(*batch)) return;
  }
  const std::optional<TargetMean> mean = find_target_mean(graph);
  if (!mean) return;
  const TensorType target = graph.values[mean->target.value].type;
  Counting counting(graph, graph.nodes[mean->node].region);
  ValueId counted = counting.add("aten.ne.Scalar",
                                 {{"self", mean->target}, {"other", SymExpr(mean->ignore_index)}},
                                 DType::kBool, target.sizes);
  if (mean->weight) {
    const DType dtype = graph.values[mean->weight->value].type.dtype;
    const ValueId is_used = counted;
    // An ignored target need not be the index of a class: it becomes 0.
    const ValueId classes =
        counting.add("aten.where.ScalarOther",
                     {{"condition", is_used}, {"self", mean->target}, {"other", SymExpr(0)}},
                     target.dtype, target.sizes);
    const ValueId indices =
        counting.add("aten.to.dtype", {{"self", classes}, {"dtype", DType::kInt64}}, DType::kInt64,
                     target.sizes);
    const ValueId weights = counting.add(
        "aten.index.Tensor",
        {{"self", *mean->weight}, {"indices", std::vector<std::optional<ValueId>>{indices}}}, dtype,
        target.sizes);
    counted = counting.add("aten.mul.Tensor", {{"self", weights}, {"other", is_used}}, dtype,
                           target.sizes);
  }
  // In float64, as a sum of weights in half precision would lose what they add.
  graph.items = counting.add("aten.sum.default", {{"self", counted}, {"dtype", DType::kFloat64}},
                             DType::kFloat64, {});
  std::vector<Node> nodes = counting.take_nodes();
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(mean->node) + 1,
                     std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
}

int64_t num_model_nodes(const Graph& graph) {
  Graph model = graph;
  model.items = std::monostate();
  remove_dead_code(model);
  return static_cast<int64_t>(model.nodes.size());
}

std::string items_to_text(const Graph& graph) {
  if (const auto* expression = std::get_if<SymExpr>(&graph.items)) return to_text(*expression);
  const auto* id = std::get_if<ValueId>(&graph.items);
  if (id == nullptr) return "the batch";
  const auto name = [&](ValueId value) { return "%" + graph.values[value.value].name; };
  std::string text = name(*id);
  const Node* sum = producer(graph, *id);
  if (sum == nullptr || sum->op != "aten.sum.default") return text;
  const Node* weighted = operand_made_by(graph, *sum, "self", "aten.mul.Tensor");
  const Node* chosen =
      weighted ? operand_made_by(graph, *weighted, "self", "aten.index.Tensor") : nullptr;
  const auto weight = chosen ? argument<ValueId>(*chosen, "self") : std::nullopt;
  const Node* used = weight ? operand_made_by(graph, *weighted, "other", "aten.ne.Scalar")
                            : operand_made_by(graph, *sum, "self", "aten.ne.Scalar");
  const auto target = used ? argument<ValueId>(*used, "self") : std::nullopt;
  const auto ignored = used ? argument<SymExpr>(*used, "other") : std::nullopt;
  if (!target || !ignored) return text;
  text += weight ? fmt::format(", the weights {} of", name(*weight)) : ",";
  return text + fmt::format(" the targets {} other than {}", name(*target), to_text(*ignored));
}

}  // namespace trireme
