#include "trireme/cost/saved_values.h"

#include <algorithm>
#include <array>
#include <set>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/draws.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

enum class Saves : uint8_t {
  kNothing,
  kFactors,  // each operand whose neighbour carries a gradient: of products
  kFirst,    // the first operand
  kResult,   // the first result
  kOthers,   // operands that carry no gradient: masks and indices
  kEverything,
};

// Tensors that are no value of the graph.
enum class Hidden : uint8_t {
  kNone,
  kLikeFirst,  // as the first operand: the logarithms of a cross entropy
  kTwoARow,    // float32, two for each row of the last dim: mean and deviation
  kAttention,
  kLayers,        // `units` times the first result, for each of its layers
  kIndexAResult,  // an index of 8 bytes for each number of the result
};

struct Rule {
  std::string_view name;
  Saves saves = Saves::kNothing;
  Hidden hidden = Hidden::kNone;
  int64_t units = 0;
};

constexpr auto kRules = std::to_array<Rule>({
    {"linear", Saves::kFactors},
    {"matmul", Saves::kFactors},
    {"mm", Saves::kFactors},
    {"bmm", Saves::kFactors},
    {"mv", Saves::kFactors},
    {"dot", Saves::kFactors},
    {"addmm", Saves::kFactors},
    {"baddbmm", Saves::kFactors},
    {"einsum", Saves::kFactors},
    {"mul", Saves::kFactors},
    {"div", Saves::kFactors},
    {"conv1d", Saves::kFactors},
    {"conv2d", Saves::kFactors},
    {"conv3d", Saves::kFactors},
    {"convolution", Saves::kFactors},
    {"conv_transpose1d", Saves::kFactors},
    {"conv_transpose2d", Saves::kFactors},
    {"conv_transpose3d", Saves::kFactors},
    {"upsample_nearest2d", Saves::kNothing},
    {"upsample_bilinear2d", Saves::kNothing},
    {"upsample_bicubic2d", Saves::kNothing},
    {"scaled_dot_product_attention", Saves::kEverything, Hidden::kAttention},
    {"layer_norm", Saves::kFirst, Hidden::kTwoARow},
    {"rms_norm", Saves::kFirst, Hidden::kTwoARow},
    {"group_norm", Saves::kFirst},
    {"batch_norm", Saves::kFirst},
    {"instance_norm", Saves::kFirst},
    // Gates and states of every step, as torch's hooks on saved tensors count them.
    {"lstm", Saves::kEverything, Hidden::kLayers, 7},
    {"gru", Saves::kEverything, Hidden::kLayers, 7},
    {"lstm_cell", Saves::kEverything, Hidden::kLayers, 5},
    {"softmax", Saves::kResult},
    {"_softmax", Saves::kResult},
    {"log_softmax", Saves::kResult},
    {"cross_entropy_loss", Saves::kNothing, Hidden::kLikeFirst},
    {"nll_loss_nd", Saves::kOthers},
    {"nll_loss", Saves::kOthers},
    {"mse_loss", Saves::kEverything},
    {"relu", Saves::kResult},
    {"sigmoid", Saves::kResult},
    {"tanh", Saves::kResult},
    {"exp", Saves::kResult},
    {"sqrt", Saves::kResult},
    {"rsqrt", Saves::kResult},
    {"reciprocal", Saves::kResult},
    {"gelu", Saves::kFirst},
    {"silu", Saves::kFirst},
    {"softplus", Saves::kFirst},
    {"mish", Saves::kFirst},
    {"elu", Saves::kFirst},
    {"leaky_relu", Saves::kFirst},
    {"hardtanh", Saves::kFirst},
    {"relu6", Saves::kFirst},
    {"clamp", Saves::kFirst},
    {"hardswish", Saves::kFirst},
    {"abs", Saves::kFirst},
    {"log", Saves::kFirst},
    {"sin", Saves::kFirst},
    {"cos", Saves::kFirst},
    {"pow", Saves::kFirst},
    {"square", Saves::kFirst},
    {"max_pool2d", Saves::kFirst, Hidden::kIndexAResult},
    {"avg_pool2d", Saves::kFirst},
    {"adaptive_avg_pool2d", Saves::kFirst},
    {"add", Saves::kNothing},
    {"sub", Saves::kNothing},
    {"rsub", Saves::kNothing},
    {"neg", Saves::kNothing},
    {"sum", Saves::kNothing},
    {"mean", Saves::kNothing},
    {"dropout", Saves::kNothing},
    {"feature_dropout", Saves::kNothing},
    {"where", Saves::kOthers},
    {"masked_fill", Saves::kOthers},
    {"embedding", Saves::kOthers},
    {"index", Saves::kOthers},
    {"index_select", Saves::kOthers},
    {"gather", Saves::kOthers},
});

const Rule* find_rule(const Node& node) {
  const std::string_view name = without_in_place_mark(base_name(node.op));
  const auto* found = std::ranges::find(kRules, name, &Rule::name);
  return found == kRules.end() ? nullptr : found;
}

// Operators of shapes save sizes only; of what nobody knows we assume the most.
Rule rule_of(const Node& node) {
  if (const Rule* rule = find_rule(node)) return *rule;
  const OpRule* known = find_op_rule(node.op);
  const bool keeps_sizes_only =
      known != nullptr && (known->kind == OpKind::kShape || known->kind == OpKind::kCreation ||
                           known->kind == OpKind::kRandom);
  return {.saves = keeps_sizes_only ? Saves::kNothing : Saves::kEverything};
}

// 0 where only the data decides the size. More than there is counts as what can still be summed up.
int64_t bytes_of(const TensorType& type, const SymbolValues& symbols) {
  constexpr uint64_t kMost = uint64_t{1} << 46;
  const Result<std::vector<int64_t>> sizes = concrete_sizes(type.sizes, symbols);
  if (!sizes.ok()) return 0;
  return static_cast<int64_t>(
      std::min(kMost, tensor_bytes(sizes.value(), type.dtype).value_or(kMost)));
}

bool is_contiguous(const TensorType& type) {
  return type.strides == contiguous_strides(type.sizes);
}

// A view by its rule that is a copy for these tensors.
bool is_copy(const Graph& graph, const Node& node, ValueId read, ValueId made) {
  const TensorType& from = graph.values[read.value].type;
  const TensorType& to = graph.values[made.value].type;
  if (from.dtype != to.dtype || is_random(node)) return true;  // dropout is a view at rate 0
  const std::string_view name = base_name(node.op);
  const bool may_copy = name == "reshape" || name == "contiguous" || name == "flatten";
  return may_copy && !is_contiguous(from) && is_contiguous(to);
}

int64_t hidden_bytes(const Graph& graph, const Node& node, const Rule& rule,
                     const SymbolValues& symbols, const std::vector<int64_t>& bytes) {
  constexpr int64_t kFloat32Bytes = 4;
  constexpr int64_t kIndexBytes = 8;
  const ValueId first = operands(node)[0];
  const ValueId result = results(node)[0];
  const auto numbers = [&](ValueId id) {
    return bytes[id.value] / dtype_info(graph.values[id.value].type.dtype).size_bytes;
  };
  const auto last_size = [&](ValueId id, size_t back) -> int64_t {
    const std::vector<SymExpr>& sizes = graph.values[id.value].type.sizes;
    if (sizes.size() < back) return 1;
    const Result<int64_t> size = evaluate_integer(sizes[sizes.size() - back], symbols);
    return size.ok() ? std::max<int64_t>(size.value(), 1) : 1;
  };
  switch (rule.hidden) {
    case Hidden::kNone:
      return 0;
    case Hidden::kLikeFirst:
      return bytes[first.value];
    case Hidden::kTwoARow:
      return 2 * kFloat32Bytes * (numbers(first) / last_size(first, 1));
    case Hidden::kLayers: {
      const Argument* given = find_argument(node, "num_layers");
      const auto* layers = given == nullptr ? nullptr : std::get_if<SymExpr>(given);
      constexpr int64_t kMostLayers = 1 << 10;
      const int64_t count = layers != nullptr && layers->is_integer() ? layers->integer : 1;
      return rule.units * bytes[result.value] * std::clamp<int64_t>(count, 1, kMostLayers);
    }
    case Hidden::kIndexAResult:
      return kIndexBytes * numbers(result);
    case Hidden::kAttention: {
      // With dropout the probabilities lie in memory, before and after it (torch/attention.h);
      // without, one sum a row (flash attention).
      const int64_t rows = numbers(first) / last_size(first, 1);
      const Argument* rate = find_argument(node, "dropout_p");
      const auto* number = rate == nullptr ? nullptr : std::get_if<SymExpr>(rate);
      if (number == nullptr || *number == SymExpr::of_float(0)) return kFloat32Bytes * rows;
      const std::vector<ValueId> read = operands(node);
      const int64_t keys = read.size() < 2 ? 1 : last_size(read[1], 2);
      return 2 * rows * keys * dtype_info(graph.values[first.value].type.dtype).size_bytes;
    }
  }
  return 0;
}

}  // namespace

SavedValues::SavedValues(const Graph& graph, const SymbolValues& symbols)
    : carries_(trireme::carries_gradient(graph)),
      is_parameter_(graph.values.size(), false),
      is_input_(graph.values.size(), false) {
  for (const GraphInput& input : graph.inputs) {
    is_input_[input.value.value] = true;
    is_parameter_[input.value.value] = input.kind == GraphInput::Kind::kParameter;
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    bytes_.push_back(bytes_of(graph.values[v].type, symbols));
  }
  find_memory(graph);
  for (const Node& node : graph.nodes) by_node_.push_back(saved_by(graph, node, symbols));
}

void SavedValues::find_memory(const Graph& graph) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    memory_.emplace_back(static_cast<int64_t>(v));
  }
  for (const Node& node : graph.nodes) {
    const AliasKind kind = alias_kind(node);
    const std::vector<ValueId> read = operands(node);
    if (read.empty() || (kind != AliasKind::kView && kind != AliasKind::kInPlace)) continue;
    for (ValueId made : results(node)) {
      if (kind == AliasKind::kView && is_copy(graph, node, read[0], made)) continue;
      memory_[made.value] = memory_[read[0].value];
    }
  }
}

int64_t SavedValues::memory_bytes(ValueId value) const {
  const ValueId owner = memory_of(value);
  return is_input_[owner.value] ? 0 : bytes_[owner.value];
}

SavedByNode SavedValues::saved_by(const Graph& graph, const Node& node,
                                  const SymbolValues& symbols) const {
  SavedByNode saved;
  const std::vector<ValueId> read = operands(node);
  const std::vector<ValueId> made = results(node);
  const bool has_backward =
      std::ranges::any_of(made, [&](ValueId id) { return carries_[id.value]; });
  if (!has_backward || read.empty()) return saved;
  const Rule rule = rule_of(node);
  const auto save = [&](ValueId id) { saved.values.push_back(id); };
  if (rule.saves == Saves::kFactors) {
    for (size_t i = 0; i < read.size(); ++i) {
      for (size_t other = 0; other < read.size(); ++other) {
        if (other == i || !carries_[read[other].value]) continue;
        save(read[i]);
        break;
      }
    }
  }
  if (rule.saves == Saves::kFirst) save(read[0]);
  if (rule.saves == Saves::kResult) save(made[0]);
  if (rule.saves == Saves::kOthers) {
    for (ValueId id : read) {
      if (!carries_[id.value]) save(id);
    }
  }
  if (rule.saves == Saves::kEverything) {
    for (ValueId id : read) save(id);
    for (ValueId id : made) save(id);
  }
  saved.hidden_bytes = hidden_bytes(graph, node, rule, symbols, bytes_);
  if (rule.hidden == Hidden::kLikeFirst) saved.hidden_gradient_bytes = saved.hidden_bytes;
  return saved;
}

int64_t SavedValues::kept_bytes(std::span<const NodeId> nodes) const {
  std::set<ValueId> memory;
  int64_t sum = 0;
  for (const NodeId node : nodes) {
    sum += of_node(node).hidden_bytes;
    for (const ValueId value : of_node(node).values) memory.insert(memory_of(value));
  }
  for (const ValueId value : memory) sum += memory_bytes(value);
  return sum;
}

}  // namespace trireme
