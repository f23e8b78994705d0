#include "trireme/torch/interpreter.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <ATen/ATen.h>

#include "trireme/base/philox.h"
#include "trireme/graph/draws.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"
#include "trireme/plan/row_tables.h"
#include "trireme/torch/direct_gradients.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/random_operators.h"
#include "trireme/torch/region_switch.h"
#include "trireme/torch/tensors.h"

namespace trireme {

struct Interpreter::Step {
  NodeId node;
  OperatorCall call;
  // Of a node that draws: our own kernel, with the arguments of the call, and what keys it.
  const RandomOperator* random = nullptr;
  Draw draw;
  std::optional<DirectGradientCall> direct;  // where it can replace `call` in training
  // Its operands that are trained parameters, as indices into Graph::inputs: those to which
  // autograd adds when `call` runs, and when `direct` does.
  std::vector<int32_t> parameters;
  std::vector<int32_t> parameters_beside_direct;
  std::optional<RowRead> row_read;  // in training, of a parameter
  int32_t row_table = -1;           // that parameter, as an index into Graph::inputs
  bool normalizes_batch = false;    // a batch_norm by the statistics of the micro-batch
  std::vector<ValueId> dropped;     // values whose last use this is

  void count_additions(bool is_direct, GradientShare& share) const {
    for (const int32_t input : is_direct ? parameters_beside_direct : parameters) {
      share.will_add(input, Adds::kByAutograd);
    }
    if (!is_direct) return;
    for (const int32_t input : direct->parameters()) share.will_add(input, Adds::kItself);
  }
};

namespace {

bool flag_of(const Node& node, std::string_view name) {
  const Argument* argument = find_argument(node, name);
  return argument != nullptr && std::holds_alternative<bool>(*argument) &&
         std::get<bool>(*argument);
}

// Operators that torch marks as random, but only some of whose arguments make them so.
bool is_known_quiet(const Node& node) {
  const DrawRule* rule = find_draw_rule(node.op);
  return rule != nullptr && !(rule->train_flag.empty() && rule->rate.empty());
}

DrawStream draw_stream(const Draw& draw, NodeId node, const std::vector<int64_t>& sizes,
                       const InterpreterRun& run) {
  DrawStream stream = {.key = mix_bits(run.random_key, static_cast<uint64_t>(node.value))};
  if (draw.key == DrawKey::kMicroBatch) {
    // Its own kind of key: no micro-batch has the numbers of a step.
    constexpr uint64_t kOfMicroBatches = 0x6d62;
    stream.key =
        mix_bits(mix_bits(stream.key, kOfMicroBatches), static_cast<uint64_t>(run.micro_batch));
  }
  if (draw.key != DrawKey::kSample) return stream;
  const Result<int64_t> blocks = evaluate_integer(draw.place.blocks, run.symbols);
  TORCH_CHECK(blocks.ok(), blocks.ok() ? "" : blocks.error().message);
  const int64_t rows = sizes.at(static_cast<size_t>(draw.place.dim));
  TORCH_CHECK(run.num_samples > 0 && rows % run.num_samples == 0, "a dim of ", rows,
              " rows does not count ", run.num_samples, " samples");
  stream.first_sample = run.first_sample;
  stream.batch_dim = draw.place.dim;
  stream.rows_per_sample = rows / run.num_samples;
  stream.blocks = blocks.value();
  return stream;
}

// The sizes of the tensor whose dims a draw names.
std::vector<int64_t> placed_sizes(const Graph& graph, const Node& node, const CallArguments& given,
                                  const InterpreterRun& run) {
  if (find_draw_rule(node.op)->place == DrawRule::Place::kQuery) {
    return given.tensor("query").sizes().vec();
  }
  const Result<std::vector<int64_t>> sizes =
      concrete_sizes(graph.values[results(node)[0].value].type.sizes, run.symbols);
  TORCH_CHECK(sizes.ok(), sizes.ok() ? "" : sizes.error().message);
  return sizes.value();
}

// Replaces the arguments on the stack by the results.
void draw_numbers(const Graph& graph, NodeId id, const RandomOperator& random, const Draw& draw,
                  const c10::FunctionSchema& schema, const InterpreterRun& run,
                  std::vector<c10::IValue>& stack) {
  const Node& node = graph.nodes[id.value];
  const CallArguments arguments(schema, stack);
  const DrawStream stream =
      draw_stream(draw, id,
                  draw.key == DrawKey::kSample ? placed_sizes(graph, node, arguments, run)
                                               : std::vector<int64_t>(),
                  run);
  const at::ScalarType dtype = scalar_type(graph.values[results(node)[0].value].type.dtype);
  std::vector<at::Tensor> made = run_random(random, node.op, {arguments, stream, dtype});
  stack.clear();
  for (at::Tensor& tensor : made) stack.emplace_back(std::move(tensor));
}

// Those among the values, as indices into Graph::inputs.
std::vector<int32_t> trained_parameters(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<int32_t> parameters;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (input.kind != GraphInput::Kind::kParameter || !input.requires_grad) continue;
    if (std::ranges::find(values, input.value) == values.end()) continue;
    parameters.push_back(static_cast<int32_t>(i));
  }
  return parameters;
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
  const std::vector<std::optional<Draw>> found_draws = analyze_draws(graph);
  for (const NodeId id : nodes) {
    const Node& node = graph.nodes[id.value];
    // A counter of training steps (BatchNorm's) does not move in evaluation.
    const bool is_counter = base_name(node.op) == "add_" &&
                            node.module_class.starts_with("BatchNorm") &&
                            operands(node).size() == 1;
    if (mode == Mode::kEvaluation && is_counter) continue;
    TRIREME_TRY(OperatorCall call, OperatorCall::make(node, mode));
    Step step{.node = id,
              .call = std::move(call),
              .direct = {},
              .parameters = {},
              .parameters_beside_direct = {},
              .row_read = {},
              .normalizes_batch = mode == Mode::kTraining && base_name(node.op) == "batch_norm" &&
                                  flag_of(node, "training"),
              .dropped = {}};
    const bool draws = mode == Mode::kTraining ? is_random(node) : is_random_in_evaluation(node);
    // torch's own word for it, where our table of random operators has a gap.
    const bool is_unknown = !draws && step.call.draws_random_numbers() && !is_known_quiet(node);
    if (draws || is_unknown) {
      if (std::string why = why_no_draw(node); !why.empty()) return Error{std::move(why)};
      step.random = find_random_operator(node.op);
      TRIREME_CHECK(step.random != nullptr, "a random operator without a kernel");
      step.draw = *found_draws[id.value];
    } else if (mode == Mode::kTraining) {
      step.direct = DirectGradientCall::make(graph, node);
    }
    if (mode == Mode::kTraining) step.parameters = trained_parameters(graph, operands(node));
    if (step.direct.has_value()) {
      step.parameters_beside_direct = trained_parameters(graph, {step.direct->input()});
    }
    if (mode == Mode::kTraining) step.row_read = row_read(node);
    if (step.row_read.has_value()) {
      const std::vector<int32_t> found = trained_parameters(graph, {step.row_read->table});
      if (found.empty()) {
        step.row_read.reset();
      } else {
        step.row_table = found[0];
      }
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
    RegionSwitch regions(graph_, mode_ == Mode::kTraining && run.builds_graph);
    std::vector<c10::IValue> stack;
    for (const Step& step : steps_) {
      current = step.node;
      const Node& node = graph_.nodes[step.node.value];
      regions.enter(node.region);
      if (step.normalizes_batch) check_batch_norm(values[operands(node)[0].value]);
      if (run.rows != nullptr && step.row_read.has_value()) {
        run.rows->read(step.row_table, values[step.row_read->ids.value]);
      }
      at::Tensor direct;
      if (step.direct.has_value()) direct = step.direct->run(values, run.splits_backward);
      if (run.share != nullptr) step.count_additions(direct.defined(), *run.share);
      if (direct.defined()) {
        store_tensor(graph_, node.outputs[0].values[0], std::move(direct), values);
      } else {
        step.call.fill(values, run.symbols, stack);
        if (step.random == nullptr) {
          step.call.call(stack);
        } else {
          draw_numbers(graph_, step.node, *step.random, step.draw, step.call.schema(), run, stack);
        }
        store_outputs(graph_, node, stack, values, run);
        stack.clear();
      }
      for (const ValueId id : step.dropped) values[id.value].reset();
    }
  });
  if (!status.ok() && current.is_valid()) {
    const Node& node = graph_.nodes[current.value];
    Error error = while_doing(describe_node(node), status.error());
    // The two phrases of aten for a target or an index that the model has no place for.
    const bool is_of_data = error.message.find("out of bounds") != std::string::npos ||
                            error.message.find("out of range") != std::string::npos;
    if (is_of_data) error.message += "; look for it in the data of this micro-batch";
    return error;
  }
  return status;
}

}  // namespace trireme
