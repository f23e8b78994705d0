#include "trireme/cost/graph_work.h"

#include <algorithm>
#include <cmath>

#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"
#include "trireme/plan/gradients.h"

namespace trireme {
namespace {

// The product that has these flops and this result. A convolution is one of its result's places
// with its channels (im2col); an attention one of its queries with the keys.
MatmulSize product_size(const Graph& graph, const Node& node, const SymbolValues& symbols,
                        double flops) {
  const std::vector<ValueId> made = results(node);
  if (made.empty()) return {};
  const Result<std::vector<int64_t>> sizes =
      concrete_sizes(graph.values[made[0].value].type.sizes, symbols);
  if (!sizes.ok() || sizes.value().empty()) return {};
  const OpRule* rule = find_op_rule(node.op);
  const bool is_convolution = rule != nullptr && rule->kind == OpKind::kConvolution;
  const std::vector<int64_t>& result = sizes.value();
  const int64_t columns = is_convolution && result.size() > 1 ? result[1] : result.back();
  int64_t numbers = 1;
  for (const int64_t size : result) numbers *= size;
  if (numbers <= 0 || columns <= 0) return {};
  const double depth = flops / 2 / static_cast<double>(numbers);
  return {.m = numbers / columns,
          .n = columns,
          .k = std::max<int64_t>(1, std::llround(depth)),
          .batch = 1};
}

bool has_deferred_gradient(const Node& node) {
  const OpRule* rule = find_op_rule(node.op);
  return rule != nullptr && (is_heavy(rule->kind) || rule->name == "embedding");
}

class Works {
 public:
  Works(const Graph& graph, const SymbolValues& symbols, const SavedValues& saved)
      : graph_(graph), symbols_(symbols), saved_(saved) {}

  [[nodiscard]] NodeWork of_node(NodeId id) const {
    const Node& node = graph_.nodes[id.value];
    const OpRule* rule = find_op_rule(node.op);
    NodeWork work;
    work.forward = forward(node, rule);
    const std::vector<ValueId> read = operands(node);
    const std::vector<ValueId> made = results(node);
    const bool has_backward =
        std::ranges::any_of(made, [&](ValueId value) { return saved_.carries_gradient(value); });
    if (!has_backward) return work;
    const bool needs_input = std::ranges::any_of(read, [&](ValueId value) {
      return saved_.carries_gradient(value) && !saved_.is_parameter(value);
    });
    const bool has_parameter = std::ranges::any_of(read, [&](ValueId value) {
      return saved_.carries_gradient(value) && saved_.is_parameter(value);
    });
    const bool is_deferred = has_parameter && has_deferred_gradient(node);
    if (needs_input || (has_parameter && !is_deferred)) {
      work.input_gradient = backward(id, work.forward, rule);
    }
    if (is_deferred) work.weight_gradient = backward(id, work.forward, rule);
    return work;
  }

 private:
  [[nodiscard]] double bytes_of(const std::vector<ValueId>& values) const {
    double sum = 0;
    for (const ValueId value : values) sum += static_cast<double>(saved_.bytes(value));
    return sum;
  }

  [[nodiscard]] OperatorWork forward(const Node& node, const OpRule* rule) const {
    OperatorWork work = {.name = std::string(base_name(node.op))};
    // A view moves nothing, and is not worth a launch.
    const std::vector<ValueId> made = results(node);
    if (rule != nullptr && rule->alias == AliasKind::kView && !made.empty() &&
        saved_.memory_of(made[0]) != made[0]) {
      work.launches = 0;
      return work;
    }
    // An embedding reads as many rows as it makes, and not its whole table.
    const bool reads_rows = rule != nullptr && rule->kind == OpKind::kIndexing;
    work.bytes =
        (reads_rows ? 2 : 1) * bytes_of(made) + (reads_rows ? 0 : bytes_of(operands(node)));
    if (rule == nullptr || !is_heavy(rule->kind)) return work;
    const Result<double> flops = node_flops(graph_, node, symbols_);
    if (!flops.ok() || flops.value() <= 0) return work;
    work.flops = flops.value();
    work.matmul = product_size(graph_, node, symbols_, flops.value());
    if (*work.matmul == MatmulSize()) work.matmul.reset();
    return work;
  }

  [[nodiscard]] OperatorWork backward(NodeId id, const OperatorWork& forward,
                                      const OpRule* rule) const {
    OperatorWork work = forward;
    if (rule != nullptr && is_heavy(rule->kind)) {
      // Both factors of an attention have a gradient.
      if (rule->kind == OpKind::kAttention && work.matmul.has_value()) {
        work.matmul->k *= 2;
        work.flops *= 2;
        work.bytes *= 2;
      }
      return work;
    }
    const Node& node = graph_.nodes[id.value];
    if (rule != nullptr && rule->kind == OpKind::kIndexing) return work;
    const SavedByNode& saved = saved_.of_node(id);
    work.bytes = bytes_of(saved.values) + static_cast<double>(saved.hidden_bytes);
    if (forward.launches == 0) return work;
    for (const std::vector<ValueId>& values : {operands(node), results(node)}) {
      for (const ValueId value : values) {
        if (saved_.carries_gradient(value)) work.bytes += static_cast<double>(saved_.bytes(value));
      }
    }
    return work;
  }

  const Graph& graph_;
  const SymbolValues& symbols_;
  const SavedValues& saved_;
};

}  // namespace

std::vector<NodeWork> graph_work(const Graph& graph, const SymbolValues& symbols,
                                 const SavedValues& saved) {
  const Works works(graph, symbols, saved);
  std::vector<NodeWork> result;
  result.reserve(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    result.push_back(works.of_node(NodeId(static_cast<int64_t>(i))));
  }
  return result;
}

double seconds_of(const DeviceModel& device, const std::vector<NodeWork>& works, BlockPass pass,
                  std::span<const NodeId> nodes) {
  const bool is_forward = pass == BlockPass::kForward || pass == BlockPass::kRecompute;
  const bool has_input = pass == BlockPass::kBackward || pass == BlockPass::kInputGradient;
  const bool has_weight = pass == BlockPass::kBackward || pass == BlockPass::kWeightGradient;
  std::vector<OperatorWork> chosen;
  for (const NodeId node : nodes) {
    const NodeWork& work = works[node.value];
    if (is_forward) chosen.push_back(work.forward);
    if (has_input && work.input_gradient.has_value()) chosen.push_back(*work.input_gradient);
    if (has_weight && work.weight_gradient.has_value()) chosen.push_back(*work.weight_gradient);
  }
  return pass_seconds(device, chosen);
}

OperatorWork update_work(const Graph& graph, std::span<const int32_t> inputs, int32_t num_states) {
  OperatorWork work = {.name = "update", .launches = 0};
  for (const int32_t input : inputs) {
    const TensorType& type = graph.values[graph.inputs[input].value.value].type;
    const Result<int64_t> bytes = value_bytes(graph, graph.inputs[input].value, {});
    if (!bytes.ok()) continue;
    const double numbers = static_cast<double>(bytes.value()) / dtype_info(type.dtype).size_bytes;
    const double accumulator = dtype_info(accumulator_dtype(type.dtype)).size_bytes;
    // The gradient is set to zero, divided by the number of items and read; weight and states are
    // read and written.
    work.bytes +=
        2 * (1 + num_states) * static_cast<double>(bytes.value()) + 4 * numbers * accumulator;
    work.launches += 1;
  }
  return work;
}

}  // namespace trireme
