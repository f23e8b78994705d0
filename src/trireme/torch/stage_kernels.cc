#include "trireme/torch/stage_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/philox.h"
#include "trireme/graph/default_dtype.h"
#include "trireme/plan/gradients.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/interpreter.h"
#include "trireme/torch/moving_averages.h"
#include "trireme/torch/parameter_update.h"
#include "trireme/torch/parameters.h"
#include "trireme/torch/tensors.h"

namespace trireme {
namespace {

// A micro-batch between its forward and its backward.
struct MicroBatch {
  SymbolValues symbols;
  std::vector<at::Tensor> received;  // leaves, as Stage::receives
  std::vector<at::Tensor> outgoing;  // as Stage::sends, until they are sent
  // The ends of the graph: of each send that carries a gradient, or of the loss.
  torch::autograd::edge_list edges;
  std::vector<at::Tensor> gradients;  // received, as `edges`
  double items = 0;
};

// Tensors that a Message keeps alive.
Message hold(std::vector<at::Tensor> tensors) {
  auto owner = std::make_shared<std::vector<at::Tensor>>(std::move(tensors));
  Message message;
  for (const at::Tensor& tensor : *owner) message.parts.push_back(tensor_memory(tensor));
  message.owner = std::move(owner);
  return message;
}

class TorchStageKernels : public StageKernels {
 public:
  explicit TorchStageKernels(const StageOptions& options)
      : options_(options),
        graph_(*options.graph),
        stage_(options.partition->stages[options.stage]),
        is_last_(options.stage + 1 == static_cast<int32_t>(options.partition->stages.size())) {}

  Status initialize() {
    at::set_num_threads(options_.num_threads);
    // Of the whole process; all of its ranks run one model.
    at::set_default_dtype(c10::scalarTypeToTypeMeta(scalar_type(default_dtype(graph_))));
    TRIREME_TRY(parameters_, Parameters::load(*options_.archive, graph_, stage_, options_.initial));
    changed_ = changed_buffers(graph_, stage_);
    if (options_.optimizer.has_value()) TRIREME_TRY(find_moving_averages());
    for (const BoundaryValue& send : stage_.sends) kept_.push_back(send.value);
    if (is_last_) {
      kept_.push_back(graph_.loss);
      if (const auto* items = std::get_if<ValueId>(&graph_.items)) kept_.push_back(*items);
    }
    if (options_.optimizer.has_value()) {
      TRIREME_TRY(update_, ParameterUpdate::make(*options_.optimizer, graph_, parameters_));
    }
    return Status();
  }

  Status begin_step(StepInputs inputs) override {
    inputs_ = std::move(inputs);
    TRIREME_TRY(symbols_, inputs_.pipeline->begin_step());
    std::unique_ptr<Interpreter>& interpreter = inputs_.is_training ? training_ : evaluation_;
    if (interpreter == nullptr) {
      TRIREME_TRY(interpreter,
                  Interpreter::make(graph_, stage_.nodes, kept_,
                                    inputs_.is_training ? Mode::kTraining : Mode::kEvaluation));
    }
    micro_batches_.clear();
    const size_t num_global = num_global_micro_batches();
    losses_.assign(2 * num_global, 0.0);
    outcome_ = StepOutcome();
    if (!inputs_.is_training) return Status();
    update_.begin_step();
    return guard([&] {
      before_.clear();
      for (const int32_t input : changed_) before_.push_back(parameters_.value(input).clone());
      parameters_.zero_gradients();
      moving_.begin_step();
    });
  }

  Status compute(const Action& action) override {
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(action.index);
      case ActionKind::kBackward:
        return guard([&] { backward(action.index); });
      case ActionKind::kUpdate:
        return guard([&] { update(); });
      default:
        check_failed(__FILE__, __LINE__, "a compute action", to_text(action));
    }
  }

  Result<Message> message(const Action& action) override {
    return guard([&]() -> Result<Message> {
      switch (action.kind) {
        case ActionKind::kSendActivation:
          return hold(std::move(micro_batches_.at(action.index).outgoing));
        case ActionKind::kReceiveActivation:
          return receive_activations(action.index);
        case ActionKind::kSendGradient:
          return send_gradients(action.index);
        case ActionKind::kReceiveGradient:
          return receive_gradients(action.index);
        case ActionKind::kAllReduce:
          return reduction(action.index);
        case ActionKind::kTiedReduce:
          return tied_reduction(action.index);
        case ActionKind::kScalars:
          return scalars(static_cast<ScalarExchange>(action.index));
        default:
          check_failed(__FILE__, __LINE__, "a communication action", to_text(action));
      }
    });
  }

  Status complete(const Action& action) override {
    if (action.kind == ActionKind::kScalars) {
      return action.index == static_cast<int32_t>(ScalarExchange::kLosses) ? finish_losses()
                                                                           : finish_norms();
    }
    if (action.kind == ActionKind::kAllReduce &&
        action.index == static_cast<int32_t>(parameters_.buckets().size())) {
      return guard([&] {
        moving_.finish_step(moving_sum_, static_cast<int64_t>(num_global_micro_batches()));
      });
    }
    return Status();
  }

  [[nodiscard]] StepOutcome outcome() const override { return outcome_; }

  [[nodiscard]] std::vector<std::optional<double>> gradient_norms() const override {
    const std::vector<bool> gets = gets_gradient(graph_);
    std::vector<std::optional<double>> norms(graph_.inputs.size());
    for (size_t i = 0; i < norms.size(); ++i) {
      if (gets[i]) norms[i] = std::sqrt(squares_.at(i));
    }
    return norms;
  }

  [[nodiscard]] Result<Message> state(int32_t input) const override {
    at::Tensor value = parameters_.value(input);
    if (!value.defined()) {
      TRIREME_TRY(value, load_value(*options_.archive, graph_.inputs[input], options_.initial));
    }
    return guard([&]() -> Result<Message> { return hold({value.detach().contiguous()}); });
  }

  [[nodiscard]] Status set_state(int32_t input, std::span<const std::byte> bytes) override {
    return guard([&] {
      const at::NoGradGuard no_grad;
      at::Tensor value = parameters_.value(input);
      TRIREME_CHECK(bytes.size() == value.nbytes(), "the values are those of the input");
      // from_blob takes no const memory; it is only read.
      value.copy_(at::from_blob(const_cast<std::byte*>(bytes.data()), value.sizes(),
                                value.options().requires_grad(false)));
    });
  }

 private:
  // --- set-up ----------------------------------------------------------------------------------

  // One replica keeps them as the forward pass leaves them.
  Status find_moving_averages() {
    if (options_.dp == 1) return Status();
    TRIREME_TRY(std::vector<MovingBuffer> found, moving_buffers(graph_, stage_, options_.dp));
    std::vector<MovingAverages::Buffer> buffers;
    for (const MovingBuffer& moving : found) {
      buffers.push_back({parameters_.value(moving.input), moving.momentum});
    }
    moving_ = MovingAverages(std::move(buffers));
    return Status();
  }

  [[nodiscard]] size_t num_global_micro_batches() const {
    size_t count = 0;
    for (const int32_t n : inputs_.shares.num_micro_batches) count += static_cast<size_t>(n);
    return count;
  }

  // Of this replica's micro-batch 0.
  [[nodiscard]] size_t first_global_micro_batch() const {
    size_t first = 0;
    for (int32_t r = 0; r < options_.replica; ++r) {
      first += static_cast<size_t>(inputs_.shares.num_micro_batches[r]);
    }
    return first;
  }

  // An evaluation draws other numbers than training, and each evaluation the same.
  [[nodiscard]] uint64_t random_key() const {
    constexpr uint64_t kOfEvaluation = 0x6576616c;
    const uint64_t key = mix_bits(options_.seed, static_cast<uint64_t>(inputs_.step));
    return inputs_.is_training ? key : mix_bits(key, kOfEvaluation);
  }

  [[nodiscard]] const StepShares::Share& share(int32_t index) const {
    return inputs_.shares.shares[options_.replica][index];
  }

  MicroBatch& micro_batch(int32_t index) {
    const auto [entry, is_new] = micro_batches_.try_emplace(index);
    if (is_new) entry->second.symbols = symbols_[index];
    return entry->second;
  }

  // --- forward ---------------------------------------------------------------------------------

  Status forward(int32_t index) {
    MicroBatch& batch = micro_batch(index);
    std::vector<at::Tensor> values(graph_.values.size());
    TRIREME_TRY(std::vector<InputTensor> given, inputs_.pipeline->take(index));
    size_t next = 0;
    for (const int32_t input : stage_.inputs) {
      const Value& value = graph_.values[graph_.inputs[input].value.value];
      at::Tensor& place = values[graph_.inputs[input].value.value];
      if (graph_.inputs[input].kind == GraphInput::Kind::kUser) {
        TRIREME_TRY(place, input_tensor(std::move(given[next++]), value.type.dtype));
      } else {
        place = parameters_.value(input);
      }
    }
    std::vector<at::Tensor> changed;  // the interpreter drops values after their last use
    TRIREME_TRY(guard([&] {
      for (const int32_t input : changed_) {
        at::Tensor& value = values[graph_.inputs[input].value.value];
        value = value.clone();
        changed.push_back(value);
      }
    }));
    for (size_t i = 0; i < stage_.receives.size(); ++i) {
      values[stage_.receives[i].value.value] = batch.received[i];
    }
    InterpreterRun run{.symbols = batch.symbols,
                       .random_key = random_key(),
                       .micro_batch = static_cast<int64_t>(first_global_micro_batch()) + index,
                       .first_sample = share(index).first,
                       .num_samples = share(index).size};
    TRIREME_TRY((inputs_.is_training ? training_ : evaluation_)->run(values, run));
    batch.symbols = std::move(run.symbols);
    return guard([&] {
      if (inputs_.is_training) set_changed(changed);
      keep_outputs(batch, values);
      if (is_last_) keep_loss(batch, values, index);
      if (!inputs_.is_training) micro_batches_.at(index).received.clear();
    });
  }

  // A forward works on its own copies of the buffers that it changes: the backward of an earlier
  // micro-batch may still need their values of then, and an evaluation leaves them as they were.
  void set_changed(const std::vector<at::Tensor>& changed) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < changed.size(); ++i) {
      at::Tensor buffer = parameters_.value(changed_[i]);
      buffer.copy_(changed[i]);
    }
  }

  // The memory of the input becomes the tensor's.
  static Result<at::Tensor> input_tensor(InputTensor input, DType dtype) {
    return guard([&]() -> Result<at::Tensor> {
      void* memory = input.memory.get();
      return at::from_blob(
          memory, input.sizes, [owner = std::move(input.memory)](void*) {},
          at::TensorOptions().dtype(scalar_type(dtype)));
    });
  }

  void keep_outputs(MicroBatch& batch, const std::vector<at::Tensor>& values) {
    for (const BoundaryValue& send : stage_.sends) {
      const at::Tensor& value = values[send.value.value];
      const TensorType& type = graph_.values[send.value.value].type;
      TORCH_CHECK(value.scalar_type() == scalar_type(type.dtype), "%",
                  graph_.values[send.value.value].name, " is ", value.scalar_type());
      if (send.carries_gradient && inputs_.is_training) {
        // Only the end of the graph is kept; the tensor goes when it is sent.
        batch.edges.push_back(value.requires_grad() ? torch::autograd::impl::gradient_edge(value)
                                                    : torch::autograd::Edge());
      }
      // The same strides on both sides of a border: those of the archive.
      batch.outgoing.push_back(as_archived(value.detach(), type, batch.symbols));
    }
  }

  void keep_loss(MicroBatch& batch, const std::vector<at::Tensor>& values, int32_t index) {
    const at::Tensor& loss = values[graph_.loss.value];
    if (const auto* id = std::get_if<ValueId>(&graph_.items)) {
      batch.items = values[id->value].item().toDouble();
    } else if (const auto* expression = std::get_if<SymExpr>(&graph_.items)) {
      Result<SymValue> value = evaluate(*expression, batch.symbols);
      TORCH_CHECK(value.ok(), "the number of items has no value");
      batch.items = std::holds_alternative<int64_t>(value.value())
                        ? static_cast<double>(std::get<int64_t>(value.value()))
                        : std::get<double>(value.value());
    } else {
      batch.items = static_cast<double>(share(index).size);
    }
    const size_t slot = 2 * (first_global_micro_batch() + static_cast<size_t>(index));
    losses_[slot] = batch.items == 0 ? 0.0 : loss.item().toDouble();
    losses_[slot + 1] = batch.items;
    if (!inputs_.is_training) return;
    if (batch.items > 0 && loss.requires_grad()) {
      batch.edges.push_back(torch::autograd::impl::gradient_edge(loss));
      batch.gradients.push_back(at::full({}, batch.items, loss.options().requires_grad(false)));
    }
  }

  Result<Message> receive_activations(int32_t index) {
    MicroBatch& batch = micro_batch(index);
    for (const BoundaryValue& receive : stage_.receives) {
      TRIREME_TRY(at::Tensor tensor,
                  empty_tensor(graph_.values[receive.value.value].type, batch.symbols));
      batch.received.push_back(tensor);
    }
    // Storage is filled through its memory: autograd sees a leaf only once it is complete, and
    // nothing writes to it later.
    Message message = hold(batch.received);
    for (size_t i = 0; i < stage_.receives.size(); ++i) {
      if (stage_.receives[i].carries_gradient && inputs_.is_training) {
        batch.received[i].set_requires_grad(true);
      }
    }
    return message;
  }

  // --- backward --------------------------------------------------------------------------------

  void backward(int32_t index) {
    MicroBatch& batch = micro_batches_.at(index);
    torch::autograd::edge_list edges;
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < batch.edges.size(); ++i) {
      if (!batch.edges[i].is_valid()) continue;  // the value needed no gradient after all
      edges.push_back(batch.edges[i]);
      gradients.push_back(batch.gradients[i]);
    }
    if (!edges.empty()) {
      torch::autograd::Engine::get_default_engine().execute(
          edges, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
    }
    batch.edges.clear();
    batch.gradients.clear();
    parameters_.collect_gradients();
    // Every other stage sends gradients, be it none of them, and forgets the micro-batch then.
    if (options_.stage == 0) micro_batches_.erase(index);
  }

  Result<Message> send_gradients(int32_t index) {
    MicroBatch& batch = micro_batches_.at(index);
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < stage_.receives.size(); ++i) {
      if (!stage_.receives[i].carries_gradient) continue;
      const TensorType& type = graph_.values[stage_.receives[i].value.value].type;
      const at::Tensor& gradient = batch.received[i].grad();
      if (gradient.defined()) {
        gradients.push_back(as_archived(gradient, type, batch.symbols));
      } else {
        TRIREME_TRY(at::Tensor zeros, empty_tensor(type, batch.symbols));
        gradients.push_back(zeros.zero_());
      }
    }
    micro_batches_.erase(index);
    return hold(std::move(gradients));
  }

  Result<Message> receive_gradients(int32_t index) {
    MicroBatch& batch = micro_batch(index);
    for (const BoundaryValue& send : stage_.sends) {
      if (!send.carries_gradient) continue;
      TRIREME_TRY(at::Tensor tensor,
                  empty_tensor(graph_.values[send.value.value].type, batch.symbols));
      batch.gradients.push_back(tensor);
    }
    return hold(batch.gradients);
  }

  // --- reductions and scalars ------------------------------------------------------------------

  Result<Message> reduction(int32_t index) {
    if (index == static_cast<int32_t>(parameters_.buckets().size())) return moving_message();
    Message message = hold({parameters_.bucket_memory(index)});
    message.dtype = parameters_.buckets()[index].dtype;
    return message;
  }

  Result<Message> tied_reduction(int32_t index) {
    const int32_t input = options_.partition->tied[tied_groups_with_gradient()[index]].input;
    const at::Tensor& accumulator = parameters_.accumulator(input);
    TRIREME_CHECK(accumulator.defined(), "a tied parameter without a gradient is reduced");
    Message message = hold({accumulator});
    message.dtype = accumulator.scalar_type() == at::kDouble ? DType::kFloat64 : DType::kFloat32;
    return message;
  }

  // Tied groups of the schedule are those of the partition that get a gradient, in order.
  [[nodiscard]] std::vector<size_t> tied_groups_with_gradient() const {
    const std::vector<bool> gets = gets_gradient(graph_);
    std::vector<size_t> groups;
    for (size_t g = 0; g < options_.partition->tied.size(); ++g) {
      if (gets[options_.partition->tied[g].input]) groups.push_back(g);
    }
    return groups;
  }

  Result<Message> scalars(ScalarExchange exchange) {
    if (exchange == ScalarExchange::kSquaredNorms) {
      update_.divide(outcome_.items);
      squares_.assign(graph_.inputs.size(), 0.0);
      if (options_.replica == 0) {
        update_.fill_squares(*options_.partition, options_.stage, squares_);
      }
    }
    std::vector<double>& numbers = exchange == ScalarExchange::kLosses ? losses_ : squares_;
    Message message;
    message.parts = {std::as_writable_bytes(std::span(numbers))};
    message.dtype = DType::kFloat64;
    return message;
  }

  // Every rank fills its own slots and zero elsewhere, so the sum over ranks is exact.
  Status finish_losses() {
    double total = 0;
    double weighted = 0;
    for (size_t slot = 0; slot < losses_.size(); slot += 2) {
      weighted += losses_[slot] * losses_[slot + 1];
      total += losses_[slot + 1];
    }
    size_t micro_batch = 0;
    for (size_t r = 0; r < inputs_.shares.num_micro_batches.size(); ++r) {
      for (int32_t j = 0; j < inputs_.shares.num_micro_batches[r]; ++j, ++micro_batch) {
        if (!std::isfinite(losses_[2 * micro_batch]) && !outcome_.non_finite_replica.has_value()) {
          outcome_.non_finite_replica = static_cast<int32_t>(r);
        }
      }
    }
    outcome_.items = total;
    outcome_.loss = total == 0 ? 0.0 : weighted / total;
    return Status();
  }

  Status finish_norms() {
    double sum = 0;
    for (const double square : squares_) sum += square;
    outcome_.gradient_norm = std::sqrt(sum);
    if (!options_.clip_norm.has_value()) return Status();
    return guard([&] { update_.clip(*outcome_.gradient_norm, *options_.clip_norm); });
  }

  void update() {
    update_.divide(outcome_.items);
    // Nothing to learn from, or numbers that would poison the weights: the run ends after this.
    const bool learns = outcome_.items > 0 && std::isfinite(outcome_.loss) &&
                        std::isfinite(outcome_.gradient_norm.value_or(0));
    if (learns) return update_.step(inputs_.lr);
    set_changed(before_);
  }

  Result<Message> moving_message() {
    int64_t later = 0;
    for (size_t r = static_cast<size_t>(options_.replica) + 1;
         r < inputs_.shares.num_micro_batches.size(); ++r) {
      later += inputs_.shares.num_micro_batches[r];
    }
    moving_sum_ = moving_.contribution(later);
    Message message = hold({moving_sum_});
    message.dtype = DType::kFloat64;
    return message;
  }

  StageOptions options_;
  const Graph& graph_;
  const Stage& stage_;
  bool is_last_;
  Parameters parameters_;
  MovingAverages moving_;
  std::vector<int32_t> changed_;  // buffers that the forward pass changes, as graph inputs
  std::vector<ValueId> kept_;
  std::unique_ptr<Interpreter> training_;
  std::unique_ptr<Interpreter> evaluation_;
  ParameterUpdate update_;

  // Of the step at hand.
  std::vector<at::Tensor> before_;  // the buffers of `changed_` before it
  StepInputs inputs_;
  std::vector<SymbolValues> symbols_;  // by micro-batch
  std::map<int32_t, MicroBatch> micro_batches_;
  std::vector<double> losses_;   // (loss, items) of each global micro-batch
  std::vector<double> squares_;  // by graph input
  StepOutcome outcome_;
  at::Tensor moving_sum_;
};

}  // namespace

Result<std::unique_ptr<StageKernels>> StageKernels::make(const StageOptions& options) {
  auto kernels = std::make_unique<TorchStageKernels>(options);
  TRIREME_TRY(kernels->initialize());
  return std::unique_ptr<StageKernels>(std::move(kernels));
}

}  // namespace trireme
