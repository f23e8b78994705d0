#include "trireme/torch/interpreter.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <ATen/ATen.h>

#include "trireme/base/philox.h"
#include "trireme/graph/op_rules.h"
#include "trireme/torch/attention.h"
#include "trireme/torch/direct_gradients.h"
#include "trireme/torch/dropout.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/region_switch.h"
#include "trireme/torch/tensors.h"

namespace trireme {

struct Interpreter::Step {
  NodeId node;
  // A random node runs by our own counter-based kernel: no call then.
  std::optional<OperatorCall> call;
  std::optional<DirectGradientCall> direct;  // where it can replace `call` in training
  bool normalizes_batch = false;             // a batch_norm by the statistics of the micro-batch
  std::vector<ValueId> dropped;              // values whose last use this is
};

namespace {

double number_of(const Node& node, std::string_view name, double otherwise) {
  const Argument* argument = find_argument(node, name);
  const auto* expression = argument == nullptr ? nullptr : std::get_if<SymExpr>(argument);
  if (expression == nullptr) return otherwise;
  const Result<SymValue> value = evaluate(*expression, {});
  if (!value.ok()) return otherwise;
  return std::holds_alternative<int64_t>(value.value())
             ? static_cast<double>(std::get<int64_t>(value.value()))
             : std::get<double>(value.value());
}

bool flag_of(const Node& node, std::string_view name) {
  const Argument* argument = find_argument(node, name);
  return argument != nullptr && std::holds_alternative<bool>(*argument) &&
         std::get<bool>(*argument);
}

// The dim of a value whose size holds the batch; -1 when there is none.
int64_t batch_dim(const Graph& graph, ValueId id) {
  const std::optional<std::string> symbol = batch_symbol(graph);
  if (!symbol.has_value()) return -1;
  const std::vector<SymExpr>& sizes = graph.values[id.value].type.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::set<std::string> symbols;
    collect_symbols(sizes[d], symbols);
    if (symbols.contains(*symbol)) return static_cast<int64_t>(d);
  }
  return -1;
}

DropoutKey dropout_key(const Graph& graph, NodeId node, ValueId batch_like, const at::Tensor& x,
                       const InterpreterRun& run) {
  DropoutKey key = {.key = mix_bits(run.random_key, static_cast<uint64_t>(node.value)),
                    .first_sample = run.first_sample,
                    .batch_dim = batch_dim(graph, batch_like)};
  if (key.batch_dim >= 0) {
    key.rows_per_sample = run.num_samples == 0 ? 1 : x.size(key.batch_dim) / run.num_samples;
  } else {
    key.first_sample = 0;  // a weight: the same elements for every micro-batch
  }
  return key;
}

Error layout_dependent(const Node& node) {
  return Error{
      fmt::format("{} of module '{}' draws random numbers in a way that depends on the "
                  "layout, which is not supported; use dropout instead",
                  node.op, node.module)};
}

// Operators that torch marks as random, but only some of whose arguments make them so (is_random).
bool is_known_quiet(const Node& node) {
  const std::string_view name = base_name(node.op);
  return name == "dropout" || name == "dropout_" || name == "scaled_dot_product_attention" ||
         name == "lstm" || name == "gru" || name == "rnn_tanh" || name == "rnn_relu";
}

bool is_counter_based(const Node& node) {
  const std::string_view name = base_name(node.op);
  return name == "dropout" || name == "dropout_" || name == "scaled_dot_product_attention";
}

at::Tensor run_random(const Graph& graph, NodeId id, const std::vector<at::Tensor>& values,
                      const InterpreterRun& run) {
  const Node& node = graph.nodes[id.value];
  const auto tensor = [&](std::string_view name) -> std::optional<at::Tensor> {
    const Argument* argument = find_argument(node, name);
    if (argument == nullptr || !std::holds_alternative<ValueId>(*argument)) return std::nullopt;
    return values[std::get<ValueId>(*argument).value];
  };
  if (base_name(node.op) == "scaled_dot_product_attention") {
    const at::Tensor q = *tensor("query");
    AttentionOptions options = {.dropout_p = number_of(node, "dropout_p", 0),
                                .is_causal = flag_of(node, "is_causal"),
                                .scale = {},
                                .enable_gqa = flag_of(node, "enable_gqa")};
    const Argument* scale = find_argument(node, "scale");
    if (scale != nullptr && std::holds_alternative<SymExpr>(*scale)) {
      options.scale = number_of(node, "scale", 1);
    }
    const ValueId query = std::get<ValueId>(*find_argument(node, "query"));
    return attention_with_dropout(q, *tensor("key"), *tensor("value"), tensor("attn_mask"), options,
                                  dropout_key(graph, id, query, q, run));
  }
  const ValueId input = operands(node)[0];
  const at::Tensor& x = values[input.value];
  const at::Tensor dropped =
      counter_dropout(x, number_of(node, "p", 0.5), dropout_key(graph, id, input, x, run));
  if (base_name(node.op) == "dropout") return dropped;
  at::Tensor changed = x;
  return changed.copy_(dropped);
}

// As torch.nn.functional does; the operator itself would go on with a variance that is not a
// number.
void check_batch_norm(const at::Tensor& x) {
  TORCH_CHECK(x.numel() > x.size(1), "training needs more than one value a channel, but a ",
              "micro-batch of sizes ", x.sizes(), " has one; use fewer micro-batches, or ",
              "--drop-last where the last batch of an epoch is too short");
}

// A result of another dtype than the archive's would train on, with other numbers.
void store_tensor(const Graph& graph, ValueId id, at::Tensor tensor,
                  std::vector<at::Tensor>& values) {
  const at::ScalarType expected = scalar_type(graph.values[id.value].type.dtype);
  TORCH_CHECK(!tensor.defined() || tensor.scalar_type() == expected, "%",
              graph.values[id.value].name, " is ", tensor.scalar_type(), ", but ", expected,
              " in the archive");
  values[id.value] = std::move(tensor);
}

void store_outputs(const Graph& graph, const Node& node, std::vector<c10::IValue>& stack,
                   std::vector<at::Tensor>& values, InterpreterRun& run) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const NodeOutput& output = node.outputs[i];
    if (!output.symbol.empty()) {
      run.symbols[output.symbol] = stack[i].isInt()      ? stack[i].toInt()
                                   : stack[i].isScalar() ? stack[i].toScalar().toLong()
                                                         : stack[i].toSymInt().expect_int();
    } else if (output.is_list) {
      std::vector<at::Tensor> list = stack[i].toTensorVector();
      TORCH_CHECK(list.size() == output.values.size(), node.op, " made ", list.size(),
                  " tensors, not ", output.values.size());
      for (size_t k = 0; k < list.size(); ++k) {
        store_tensor(graph, output.values[k], std::move(list[k]), values);
      }
    } else {
      store_tensor(graph, output.values[0], std::move(stack[i]).toTensor(), values);
    }
  }
}

}  // namespace

Interpreter::Interpreter(const Graph& graph, Mode mode) : graph_(graph), mode_(mode) {}
Interpreter::~Interpreter() = default;

Result<std::unique_ptr<Interpreter>> Interpreter::make(const Graph& graph,
                                                       const std::vector<NodeId>& nodes,
                                                       const std::vector<ValueId>& kept,
                                                       Mode mode) {
  auto interpreter = std::unique_ptr<Interpreter>(new Interpreter(graph, mode));
  for (const NodeId id : nodes) {
    const Node& node = graph.nodes[id.value];
    // A counter of training steps (BatchNorm's) does not move in evaluation.
    const bool is_counter = base_name(node.op) == "add_" &&
                            node.module_class.starts_with("BatchNorm") &&
                            operands(node).size() == 1;
    if (mode == Mode::kEvaluation && is_counter) continue;
    Step step{.node = id,
              .call = {},
              .direct = {},
              .normalizes_batch = mode == Mode::kTraining && base_name(node.op) == "batch_norm" &&
                                  flag_of(node, "training"),
              .dropped = {}};
    if (mode == Mode::kTraining && is_random(node)) {
      if (!is_counter_based(node)) {
        return layout_dependent(node);
      }
    } else {
      Result<OperatorCall> call = OperatorCall::make(node, mode);
      if (!call.ok()) return call.error();
      // torch's own word for it, where our list of random operators has a gap.
      if (mode == Mode::kTraining && call.value().draws_random_numbers() && !is_known_quiet(node)) {
        return layout_dependent(node);
      }
      step.call = std::move(call.value());
      if (mode == Mode::kTraining) step.direct = DirectGradientCall::make(graph, node);
    }
    interpreter->steps_.push_back(std::move(step));
  }
  std::set<ValueId> seen(kept.begin(), kept.end());
  for (auto step = interpreter->steps_.rbegin(); step != interpreter->steps_.rend(); ++step) {
    const Node& node = graph.nodes[step->node.value];
    std::vector<ValueId> touched = operands(node);
    const std::vector<ValueId> made = results(node);
    touched.insert(touched.end(), made.begin(), made.end());
    for (const ValueId id : touched) {
      if (seen.insert(id).second) step->dropped.push_back(id);
    }
  }
  return interpreter;
}

Status Interpreter::run(std::vector<at::Tensor>& values, InterpreterRun& run) const {
  NodeId current;
  Status status = guard([&] {
    RegionSwitch regions(graph_, mode_);
    std::vector<c10::IValue> stack;
    for (const Step& step : steps_) {
      current = step.node;
      const Node& node = graph_.nodes[step.node.value];
      regions.enter(node.region);
      if (step.normalizes_batch) check_batch_norm(values[operands(node)[0].value]);
      at::Tensor direct;
      if (step.direct.has_value()) direct = step.direct->run(values);
      if (direct.defined()) {
        store_tensor(graph_, node.outputs[0].values[0], std::move(direct), values);
      } else if (step.call.has_value()) {
        step.call->run(values, run.symbols, stack);
        store_outputs(graph_, node, stack, values, run);
        stack.clear();
      } else {
        values[node.outputs[0].values[0].value] = run_random(graph_, step.node, values, run);
      }
      for (const ValueId id : step.dropped) values[id.value].reset();
    }
  });
  if (!status.ok() && current.is_valid()) {
    const Node& node = graph_.nodes[current.value];
    return while_doing(fmt::format("{} of module '{}'", node.op, node.module), status.error());
  }
  return status;
}

}  // namespace trireme
