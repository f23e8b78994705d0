#include "trireme/plan/gradients.h"

#include <algorithm>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/draws.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"

namespace trireme {

std::vector<bool> gets_gradient(const Graph& graph) {
  const std::vector<bool> carries = carries_gradient(graph);
  const std::vector<ValueId> roots = alias_roots(graph);
  // Memory that is written in place passes gradients between all values that share it.
  std::vector<bool> is_written(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (ValueId id : written_values(node)) is_written[roots[id.value].value] = true;
  }
  std::vector<bool> is_needed(graph.values.size(), false);
  std::vector<bool> is_memory_needed(graph.values.size(), false);
  const auto need = [&](ValueId id) {
    if (!carries[id.value]) return;
    is_needed[id.value] = true;
    if (is_written[roots[id.value].value]) is_memory_needed[roots[id.value].value] = true;
  };
  need(graph.loss);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const std::vector<ValueId> made = results(node);
    const bool is_path = std::any_of(made.begin(), made.end(), [&](ValueId id) {
      return carries[id.value] && (is_needed[id.value] || is_memory_needed[roots[id.value].value]);
    });
    if (!is_path) continue;
    for (ValueId id : operands(node)) need(id);
  }
  std::vector<bool> result;
  result.reserve(graph.inputs.size());
  for (const GraphInput& input : graph.inputs) {
    result.push_back(input.kind == GraphInput::Kind::kParameter && input.requires_grad &&
                     is_needed[input.value.value]);
  }
  return result;
}

DType accumulator_dtype(DType parameter) {
  return parameter == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<int32_t> tied_inputs(const Partition& partition) {
  std::vector<int32_t> inputs;
  for (const Partition::TiedParameter& tied : partition.tied) inputs.push_back(tied.input);
  std::ranges::sort(inputs);
  return inputs;
}

namespace {

// By graph input: where a stage's nodes first read it; behind all of them where none does.
std::vector<size_t> first_reads(const Graph& graph, const Stage& stage) {
  std::vector<size_t> first_of_value(graph.values.size(), stage.nodes.size());
  for (size_t i = stage.nodes.size(); i-- > 0;) {
    for (const ValueId id : operands(graph.nodes[stage.nodes[i].value]))
      first_of_value[id.value] = i;
  }
  std::vector<size_t> first;
  for (const GraphInput& input : graph.inputs) first.push_back(first_of_value[input.value.value]);
  return first;
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const Graph& graph, const Stage& stage,
                                             const BucketOptions& options) {
  const std::vector<bool> gets = gets_gradient(graph);
  const std::vector<size_t> first = first_reads(graph, stage);
  const auto is_tied = [&](int32_t input) {
    return std::ranges::binary_search(options.tied, input);
  };
  const auto is_row_table = [&](int32_t input) {
    return std::ranges::binary_search(options.row_tables, input);
  };
  std::vector<int32_t> inputs;
  for (const int32_t input : stage.inputs) {
    if (gets[input] && !is_row_table(input)) inputs.push_back(input);
  }
  std::ranges::sort(inputs, [&](int32_t a, int32_t b) {
    return std::tuple(is_tied(a), first[b], b) < std::tuple(is_tied(b), first[a], a);
  });
  std::vector<GradientBucket> buckets;
  int64_t filled = 0;
  for (const int32_t input : inputs) {
    const TensorType& type = graph.values[graph.inputs[input].value.value].type;
    const DType dtype = accumulator_dtype(type.dtype);
    const Result<std::vector<int64_t>> sizes = concrete_sizes(type.sizes, {});
    TRIREME_CHECK(sizes.ok(), "a parameter has a symbolic size");
    const auto bytes = static_cast<int64_t>(tensor_bytes(sizes.value(), dtype).value_or(0));
    const bool fits = !buckets.empty() && buckets.back().dtype == dtype &&
                      buckets.back().is_tied == is_tied(input) && filled + bytes <= options.bytes;
    if (!fits) {
      buckets.push_back({.dtype = dtype, .inputs = {}, .is_tied = is_tied(input)});
      filled = 0;
    }
    buckets.back().inputs.push_back(input);
    filled += bytes;
  }
  for (const int32_t input : stage.inputs) {
    if (!is_row_table(input)) continue;
    const TensorType& type = graph.values[graph.inputs[input].value.value].type;
    buckets.push_back(
        {.dtype = accumulator_dtype(type.dtype), .inputs = {input}, .is_row_table = true});
  }
  return buckets;
}

namespace {

bool is_buffer(const GraphInput& input) {
  return input.kind == GraphInput::Kind::kBuffer || input.kind == GraphInput::Kind::kConstant;
}

int32_t input_of(const Graph& graph, ValueId id) {
  for (int32_t i = 0; i < static_cast<int32_t>(graph.inputs.size()); ++i) {
    if (graph.inputs[i].value == id) return i;
  }
  return -1;
}

double momentum_of(const Node& node) {
  const Argument* argument = find_argument(node, "momentum");
  const auto* expression = argument == nullptr ? nullptr : std::get_if<SymExpr>(argument);
  if (expression == nullptr) return 0.1;
  return expression->kind == SymExpr::Kind::kFloat ? expression->number
                                                   : static_cast<double>(expression->integer);
}

std::vector<int32_t> changed_inputs(const Graph& graph, const VirtualStage& stage,
                                    bool (*is_wanted)(const GraphInput& input)) {
  const std::vector<ValueId> roots = alias_roots(graph);
  std::set<int32_t> memory;
  for (NodeId id : stage.nodes) {
    for (ValueId written : written_values(graph.nodes[id.value])) {
      memory.insert(roots[written.value].value);
    }
  }
  std::vector<int32_t> changed;
  for (const int32_t input : stage.inputs) {
    if (is_wanted(graph.inputs[input]) &&
        memory.contains(roots[graph.inputs[input].value.value].value)) {
      changed.push_back(input);
    }
  }
  return changed;
}

}  // namespace

std::vector<int32_t> changed_buffers(const Graph& graph, const VirtualStage& stage) {
  return changed_inputs(graph, stage, is_buffer);
}

std::vector<int32_t> changed_parameters(const Graph& graph, const VirtualStage& stage) {
  return changed_inputs(graph, stage, [](const GraphInput& input) {
    return input.kind == GraphInput::Kind::kParameter;
  });
}

namespace {

// What nodes keep in buffers and parameters.
struct KeptState {
  std::vector<MovingBuffer> moving;
  // The first change that is no moving average: the input and the node.
  int32_t other_input = -1;
  const Node* other_node = nullptr;
};

KeptState kept_state(const Graph& graph, std::span<const NodeId> nodes) {
  const std::vector<ValueId> roots = alias_roots(graph);
  KeptState kept;
  for (NodeId id : nodes) {
    const Node& node = graph.nodes[id.value];
    for (ValueId written : written_values(node)) {
      int32_t input = -1;
      for (int32_t i = 0; i < static_cast<int32_t>(graph.inputs.size()); ++i) {
        const bool is_kept = graph.inputs[i].kind != GraphInput::Kind::kUser;
        if (is_kept && roots[graph.inputs[i].value.value] == roots[written.value]) input = i;
      }
      if (input < 0) continue;
      const bool is_direct = input_of(graph, written) == input;
      const bool is_batch_norm = base_name(node.op) == "batch_norm";
      const std::string& name = graph.inputs[input].names[0];
      const bool is_count = base_name(node.op) == "add_" && name.ends_with("num_batches_tracked");
      const bool is_new = std::none_of(kept.moving.begin(), kept.moving.end(),
                                       [&](const MovingBuffer& m) { return m.input == input; });
      if (is_direct && (is_batch_norm || is_count) && is_new) {
        kept.moving.push_back({.input = input,
                               .momentum = is_batch_norm ? momentum_of(node) : 0,
                               .is_count = is_count});
      } else if (is_direct && is_count) {
        continue;  // a module that runs twice counts twice
      } else if (kept.other_node == nullptr) {
        kept.other_input = input;
        kept.other_node = &node;
      }
    }
  }
  return kept;
}

std::string kind_and_name(const GraphInput& input) {
  return fmt::format("{} '{}'", is_buffer(input) ? "buffer" : "parameter", input.names[0]);
}

}  // namespace

Result<std::vector<MovingBuffer>> moving_buffers(const Graph& graph, const Stage& stage,
                                                 int32_t dp) {
  KeptState kept = kept_state(graph, stage.nodes);
  if (dp == 1 || kept.other_node == nullptr) return std::move(kept.moving);
  const std::string what = kind_and_name(graph.inputs[kept.other_input]);
  if (is_random(*kept.other_node)) {
    return Error{
        fmt::format("the forward pass fills {} with random numbers by {}, and each replica draws "
                    "its own; fill a new tensor instead, as torch.rand_like does, or use --dp 1",
                    what, kept.other_node->op)};
  }
  return Error{
      fmt::format("the forward pass changes {} by {}, which replicas cannot combine; use --dp 1",
                  what, kept.other_node->op)};
}

std::string note_on_micro_batches(const Graph& graph, int32_t num_micro_batches) {
  if (num_micro_batches == 1) return "";
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) nodes.emplace_back(static_cast<int32_t>(i));
  const KeptState kept = kept_state(graph, nodes);
  if (kept.other_node == nullptr) return "";
  return fmt::format(
      "the forward pass changes {} in each micro-batch, {} times a step; with --micro-batches 1 "
      "once, as PyTorch does",
      kind_and_name(graph.inputs[kept.other_input]), num_micro_batches);
}

Result<Reductions> reductions_of(const Graph& graph, const Stage& stage, int32_t dp,
                                 const BucketOptions& options) {
  if (dp == 1) return Reductions();
  TRIREME_TRY(std::vector<MovingBuffer> moving, moving_buffers(graph, stage, dp));
  const std::vector<GradientBucket> buckets = gradient_buckets(graph, stage, options);
  const auto count = [&](bool GradientBucket::* member) {
    return static_cast<int32_t>(std::ranges::count(buckets, true, member));
  };
  Reductions reductions{.num_tied = count(&GradientBucket::is_tied),
                        .num_row_tables = count(&GradientBucket::is_row_table)};
  reductions.num = static_cast<int32_t>(buckets.size()) - reductions.num_row_tables;
  if (moving.empty()) return reductions;
  ++reductions.num;
  if (reductions.num_tied > 0) ++reductions.num_tied;  // it comes behind them
  return reductions;
}

}  // namespace trireme
