#include "trireme/torch/stage_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/philox.h"
#include "trireme/graph/default_dtype.h"
#include "trireme/plan/gradients.h"
#include "trireme/torch/chunk_kernels.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/moving_averages.h"
#include "trireme/torch/parameter_update.h"
#include "trireme/torch/parameters.h"
#include "trireme/torch/tensors.h"

namespace trireme {
namespace {

// Tensors that a Message keeps alive.
Message hold(std::vector<at::Tensor> tensors) {
  auto owner = std::make_shared<std::vector<at::Tensor>>(std::move(tensors));
  Message message;
  for (const at::Tensor& tensor : *owner) message.parts.push_back(tensor_memory(tensor));
  message.owner = std::move(owner);
  return message;
}

Result<Message> hold(Result<std::vector<at::Tensor>> tensors) {
  if (!tensors.ok()) return tensors.error();
  return hold(std::move(tensors).value());
}

class TorchStageKernels : public StageKernels {
 public:
  explicit TorchStageKernels(const StageOptions& options)
      : options_(options),
        graph_(*options.graph),
        stage_(options.partition->stages[options.stage]) {}

  Status initialize() {
    at::set_num_threads(options_.num_threads);
    // Of the whole process; all of its ranks run one model.
    at::set_default_dtype(c10::scalarTypeToTypeMeta(scalar_type(default_dtype(graph_))));
    TRIREME_TRY(parameters_, Parameters::load(*options_.archive, graph_, stage_, options_.initial));
    for (const int32_t virtual_stage : stage_.virtual_stages) {
      chunks_.push_back(
          std::make_unique<ChunkKernels>(graph_, *options_.partition, virtual_stage, parameters_));
      const std::vector<int32_t>& changed = chunks_.back()->changed_buffers();
      changed_.insert(changed.begin(), changed.end());
    }
    if (options_.optimizer.has_value()) TRIREME_TRY(find_moving_averages());
    if (options_.optimizer.has_value()) {
      TRIREME_TRY(update_, ParameterUpdate::make(*options_.optimizer, graph_, parameters_));
    }
    return Status();
  }

  Status begin_step(StepInputs inputs) override {
    inputs_ = std::move(inputs);
    step_ = {.is_training = inputs_.is_training,
             .splits_backward = inputs_.splits_backward,
             .random_key = random_key(),
             .first_micro_batch = first_global_micro_batch(),
             .shares = inputs_.shares.shares[options_.replica],
             .symbols = {}};
    TRIREME_TRY(step_.symbols, inputs_.pipeline->begin_step());
    for (const auto& chunk : chunks_) TRIREME_TRY(chunk->begin_step(step_));
    user_inputs_.clear();
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
        return forward(action, Keep::kGraph);
      case ActionKind::kForwardKeepingInput:
        return forward(action, Keep::kInput);
      case ActionKind::kRecompute:
        return chunk(action).recompute(action.index);
      case ActionKind::kBackward:
        return backward(action, WeightGradients::kNow);
      case ActionKind::kInputGradient:
        return backward(action, WeightGradients::kLater);
      case ActionKind::kWeightGradient:
        return guard([&] { chunk(action).make_weight_gradients(action.index); });
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
          return hold(chunk(action).send_activations(action.index));
        case ActionKind::kReceiveActivation:
          return hold(chunk(action).receive_activations(action.index));
        case ActionKind::kSendGradient:
          return hold(chunk(action).send_gradients(action.index));
        case ActionKind::kReceiveGradient:
          return hold(chunk(action).receive_gradients(action.index));
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
  [[nodiscard]] int64_t first_global_micro_batch() const {
    int64_t first = 0;
    for (int32_t r = 0; r < options_.replica; ++r) first += inputs_.shares.num_micro_batches[r];
    return first;
  }

  // An evaluation draws other numbers than training, and each evaluation the same.
  [[nodiscard]] uint64_t random_key() const {
    constexpr uint64_t kOfEvaluation = 0x6576616c;
    const uint64_t key = mix_bits(options_.seed, static_cast<uint64_t>(inputs_.step));
    return inputs_.is_training ? key : mix_bits(key, kOfEvaluation);
  }

  // --- chunks ----------------------------------------------------------------------------------

  ChunkKernels& chunk(const Action& action) { return *chunks_[action.chunk]; }

  // The chunk of this rank that has the virtual stage; null where another rank has it.
  ChunkKernels* own_chunk(int32_t virtual_stage) {
    const auto found = std::ranges::find(stage_.virtual_stages, virtual_stage);
    return found == stage_.virtual_stages.end()
               ? nullptr
               : chunks_[found - stage_.virtual_stages.begin()].get();
  }

  Status forward(const Action& action, Keep keep) {
    const int32_t virtual_stage = stage_.virtual_stages[action.chunk];
    if (ChunkKernels* before = own_chunk(virtual_stage - 1)) {
      chunk(action).accept_activations(action.index, before->send_activations(action.index));
    }
    TRIREME_TRY(const UserInputs* inputs, user_inputs(action.index));
    TRIREME_TRY(chunk(action).forward(action.index, inputs->values, keep));
    if (user_inputs_[action.index].num_readers == 0) user_inputs_.erase(action.index);
    if (virtual_stage + 1 < static_cast<int32_t>(options_.partition->virtual_stages.size())) {
      return Status();
    }
    const size_t slot = 2 * static_cast<size_t>(step_.first_micro_batch + action.index);
    losses_[slot] = chunk(action).loss().mean;
    losses_[slot + 1] = chunk(action).loss().items;
    return Status();
  }

  Status backward(const Action& action, WeightGradients when) {
    if (ChunkKernels* after = own_chunk(stage_.virtual_stages[action.chunk] + 1)) {
      TRIREME_TRY(std::vector<at::Tensor> gradients, after->send_gradients(action.index));
      chunk(action).accept_gradients(action.index, std::move(gradients));
    }
    return guard([&] { chunk(action).backward(action.index, when); });
  }

  // What the batch gives to a micro-batch, by index into Graph::inputs, for all chunks.
  struct UserInputs {
    std::vector<at::Tensor> values;
    size_t num_readers = 0;  // chunks that have not run
  };

  Result<const UserInputs*> user_inputs(int32_t index) {
    const auto [entry, is_new] = user_inputs_.try_emplace(index);
    UserInputs& inputs = entry->second;
    if (is_new) {
      inputs = {.values = std::vector<at::Tensor>(graph_.inputs.size()),
                .num_readers = chunks_.size()};
      TRIREME_TRY(std::vector<InputTensor> given, inputs_.pipeline->take(index));
      size_t next = 0;
      for (const int32_t input : stage_.inputs) {
        if (graph_.inputs[input].kind != GraphInput::Kind::kUser) continue;
        const DType dtype = graph_.values[graph_.inputs[input].value.value].type.dtype;
        TRIREME_TRY(inputs.values[input], input_tensor(std::move(given[next++]), dtype));
      }
    }
    --inputs.num_readers;
    return static_cast<const UserInputs*>(&inputs);
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
    const at::NoGradGuard no_grad;
    size_t next = 0;
    for (const int32_t input : changed_) {
      at::Tensor buffer = parameters_.value(input);
      buffer.copy_(before_[next++]);
    }
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
  Parameters parameters_;
  MovingAverages moving_;
  std::vector<std::unique_ptr<ChunkKernels>> chunks_;
  std::set<int32_t> changed_;  // buffers that the forward pass changes, as graph inputs
  ParameterUpdate update_;

  // Of the step at hand.
  std::vector<at::Tensor> before_;  // the buffers of `changed_` before it
  StepInputs inputs_;
  ChunkStep step_;
  std::map<int32_t, UserInputs> user_inputs_;  // by micro-batch, until all chunks have read them
  std::vector<double> losses_;                 // (loss, items) of each global micro-batch
  std::vector<double> squares_;                // by graph input
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
