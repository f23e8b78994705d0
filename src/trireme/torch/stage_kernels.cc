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
    TRIREME_TRY(Parameters first, Parameters::load(*options_.archive, graph_, stage_,
                                                   options_.buckets, options_.initial));
    versions_.push_back(std::move(first));
    if (options_.num_weight_versions == 2) {
      TRIREME_TRY(Parameters second, versions_[0].make_version());
      versions_.push_back(std::move(second));
    }
    for (const int32_t virtual_stage : stage_.virtual_stages) {
      chunks_.push_back(std::make_unique<ChunkKernels>(graph_, *options_.partition, virtual_stage));
      const std::vector<int32_t>& changed = chunks_.back()->changed_buffers();
      changed_.insert(changed.begin(), changed.end());
    }
    if (options_.optimizer.has_value()) TRIREME_TRY(find_moving_averages());
    if (options_.optimizer.has_value()) {
      OptimizerOptions optimizer = *options_.optimizer;
      // Of two versions each would have other rows to make up for.
      optimizer.puts_off_rows = versions_.size() == 1;
      TRIREME_TRY(update_, ParameterUpdate::make(optimizer, graph_, versions_[0]));
    }
    return Status();
  }

  Status begin_step(StepInputs inputs) override {
    ++at_hand_;
    TRIREME_TRY(begin(at_hand_, std::move(inputs)));
    return guard([&] { open(batches_.at(at_hand_)); });
  }

  Status begin_ahead(StepInputs inputs) override { return begin(at_hand_ + 1, std::move(inputs)); }

  void go_on() override {
    ++at_hand_;
    TRIREME_CHECK(batches_.contains(at_hand_), "a step goes on that was not begun");
  }

  Status compute(const Action& action) override {
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(action, Keep::kGraph);
      case ActionKind::kForwardKeepingInput:
        return forward(action, Keep::kInput);
      case ActionKind::kRecompute:
        return chunk(action).recompute(id_of(action));
      case ActionKind::kBackward:
        return backward(action, WeightGradients::kNow);
      case ActionKind::kInputGradient:
        return backward(action, WeightGradients::kLater);
      case ActionKind::kWeightGradient:
        return guard([&] { chunk(action).make_weight_gradients(id_of(action)); });
      case ActionKind::kUpdate:
        return guard([&] { update(batch_of(action)); });
      default:
        check_failed(__FILE__, __LINE__, "a compute action", to_text(action));
    }
  }

  void announce_to(OnFinal on_final) override { on_final_ = std::move(on_final); }

  Result<Message> message(const Action& action) override {
    return guard([&]() -> Result<Message> {
      switch (action.kind) {
        case ActionKind::kSendActivation:
          return hold(chunk(action).send_activations(id_of(action)));
        case ActionKind::kReceiveActivation:
          return hold(chunk(action).receive_activations(id_of(action)));
        case ActionKind::kSendGradient:
          return hold(chunk(action).send_gradients(id_of(action)));
        case ActionKind::kReceiveGradient:
          return hold(chunk(action).receive_gradients(id_of(action)));
        case ActionKind::kAllReduce:
          return reduction(open(batch_of(action)), action.index);
        case ActionKind::kTiedReduce:
          return tied_reduction(open(batch_of(action)), action.index);
        case ActionKind::kScalars:
          return scalars(open(batch_of(action)), static_cast<ScalarExchange>(action.index));
        case ActionKind::kRowExchange:
          return row_exchange(open(batch_of(action)), action.index);
        default:
          check_failed(__FILE__, __LINE__, "a communication action", to_text(action));
      }
    });
  }

  Status complete(const Action& action) override {
    if (!is_collective(action.kind)) return Status();
    Batch& batch = batch_of(action);
    if (action.kind == ActionKind::kScalars) {
      return action.index == static_cast<int32_t>(ScalarExchange::kLosses) ? finish_losses(batch)
                                                                           : finish_norms(batch);
    }
    if (action.kind == ActionKind::kRowExchange) {
      return guard([&] {
        batch.rows->finish(action.index);
        const int32_t table = action.index - sum_of_row_table(0);
        if (table >= 0) keep_row_sums(batch, static_cast<size_t>(table));
      });
    }
    if (action.kind == ActionKind::kAllReduce && action.index == num_summed_buckets()) {
      return guard([&] {
        moving_.finish_step(batch.moving_sum,
                            static_cast<int64_t>(num_global_micro_batches(batch)));
      });
    }
    return Status();
  }

  [[nodiscard]] StepOutcome outcome(int32_t batch) const override {
    return batches_.at(at_hand_ + batch).outcome;
  }

  [[nodiscard]] std::vector<std::optional<double>> gradient_norms() const override {
    const std::vector<bool> gets = gets_gradient(graph_);
    std::vector<std::optional<double>> norms(graph_.inputs.size());
    for (size_t i = 0; i < norms.size(); ++i) {
      if (gets[i]) norms[i] = std::sqrt(batches_.at(at_hand_).squares.at(i));
    }
    return norms;
  }

  [[nodiscard]] Result<Message> state(int32_t input) const override {
    if (!versions_[newest_].value(input).defined()) {
      TRIREME_TRY(const at::Tensor value,
                  load_value(*options_.archive, graph_.inputs[input], options_.initial));
      return guard([&]() -> Result<Message> { return hold({value.detach().contiguous()}); });
    }
    return guard([&]() -> Result<Message> {
      return hold({update_.current_values(versions_[newest_], input).contiguous()});
    });
  }

  [[nodiscard]] Status set_state(int32_t input, std::span<const std::byte> bytes) override {
    return guard([&] {
      const at::NoGradGuard no_grad;
      for (const Parameters& version : versions_) {
        at::Tensor value = version.value(input);
        TRIREME_CHECK(bytes.size() == value.nbytes(), "the values are those of the input");
        // from_blob takes no const memory; it is only read.
        value.copy_(at::from_blob(const_cast<std::byte*>(bytes.data()), value.sizes(),
                                  value.options().requires_grad(false)));
      }
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
      buffers.push_back({versions_[0].value(moving.input), moving.momentum});
    }
    TRIREME_CHECK(buffers.empty() || versions_.size() == 1,
                  "moving averages of replicas whose steps overlap reached the runtime");
    moving_ = MovingAverages(std::move(buffers));
    return Status();
  }

  // What the batch gives to a micro-batch, by index into Graph::inputs, for all chunks.
  struct UserInputs {
    std::vector<at::Tensor> values;
    size_t num_readers = 0;  // chunks that have not run
  };

  // From the begin of its step until no step needs it.
  struct Batch {
    StepInputs inputs;
    int64_t pipeline_step = 0;  // of the inputs
    ChunkStep step;
    size_t version = 0;    // of the weights that its passes see, and that its update replaces
    bool is_open = false;  // its first forward, or its first sum where it has none, has come
    std::vector<at::Tensor> before;             // the buffers of `changed_` before it
    std::map<int32_t, UserInputs> user_inputs;  // by micro-batch, until all chunks have read them
    std::vector<double> losses;                 // (loss, items) of each global micro-batch
    std::vector<double> squares;                // by graph input
    StepOutcome outcome;
    at::Tensor moving_sum;
    std::optional<FinalGradients> final_gradients;  // of several replicas
    std::optional<RowExchange> rows;                // of a stage with row tables
    bool has_row_sums = false;                      // of one replica
  };

  // --- steps -----------------------------------------------------------------------------------

  Status begin(int64_t number, StepInputs inputs) {
    while (!batches_.empty() && batches_.begin()->first + 1 < at_hand_) {
      for (const auto& chunk : chunks_) chunk->end_step(batches_.begin()->first);
      batches_.erase(batches_.begin());
    }
    Batch& batch = batches_[number];
    batch.inputs = std::move(inputs);
    batch.version = version_of(batch.inputs);
    batch.step = {.number = number,
                  .parameters = &versions_[batch.version],
                  .is_training = batch.inputs.is_training,
                  .splits_backward = batch.inputs.splits_backward,
                  .random_key = random_key(batch.inputs),
                  .first_micro_batch = first_global_micro_batch(batch),
                  .shares = batch.inputs.shares.shares[options_.replica],
                  .symbols = {}};
    watch_gradients(batch);
    if (!batch.inputs.is_training) TRIREME_TRY(catch_up());
    TRIREME_TRY(batch.step.symbols, batch.inputs.pipeline->begin_step());
    batch.pipeline_step = batch.inputs.pipeline->begun();
    for (const auto& chunk : chunks_) TRIREME_TRY(chunk->begin_step(batch.step));
    batch.losses.assign(2 * num_global_micro_batches(batch), 0.0);
    return Status();
  }

  void watch_gradients(Batch& batch) {
    if (!batch.inputs.is_training) return;
    watch_rows(batch);
    if (options_.dp == 1) return;
    const int64_t number = batch.step.number;
    FinalGradients& final_gradients = batch.final_gradients.emplace(
        versions_[batch.version].buckets(), graph_.inputs.size(), [this, number](int32_t bucket) {
          if (on_final_ == nullptr || bucket >= num_summed_buckets()) return;
          on_final_({ActionKind::kAllReduce, bucket, 0, static_cast<int32_t>(number - at_hand_)});
        });
    for (const auto& chunk : chunks_) {
      final_gradients.expect(chunk->inputs(), static_cast<int32_t>(batch.step.shares.size()));
    }
    batch.step.final_gradients = &final_gradients;
  }

  // Before all rows of tables may be read.
  Status catch_up() {
    return guard([&] {
      for (const GradientBucket& bucket : versions_[newest_].buckets()) {
        if (bucket.is_row_table) update_.catch_up(versions_[newest_], bucket.inputs[0], {});
      }
    });
  }

  void watch_rows(Batch& batch) {
    const Parameters& parameters = versions_[batch.version];
    std::vector<RowExchange::Table> tables;
    for (const GradientBucket& bucket : parameters.buckets()) {
      if (!bucket.is_row_table) continue;
      tables.push_back({bucket.inputs[0], parameters.accumulator(bucket.inputs[0])});
    }
    if (tables.empty()) return;
    const auto on_read = [this, &parameters](int32_t input, const at::Tensor& rows) {
      update_.catch_up(parameters, input, rows);
    };
    batch.step.rows = &batch.rows.emplace(
        std::move(tables), RowExchange::Options{.replica = options_.replica,
                                                .dp = options_.dp,
                                                .needs_rows = needs_rows(*options_.optimizer),
                                                .on_read = on_read});
  }

  void keep_row_sums(Batch& batch, size_t table) {
    if (!batch.rows->sums(table).defined()) return;
    versions_[batch.version].set_row_sums(batch.rows->input(table),
                                          {batch.rows->touched(table), batch.rows->sums(table)});
  }

  // One replica has no exchanges.
  void divide_gradients(Batch& batch) {
    if (options_.dp == 1 && batch.rows.has_value() && !batch.has_row_sums) {
      batch.has_row_sums = true;
      batch.rows->finish_alone();
      for (size_t table = 0; table < batch.rows->num_tables(); ++table) keep_row_sums(batch, table);
    }
    ParameterUpdate::divide(versions_[batch.version], batch.outcome.items);
  }

  // Those of AR; row tables come behind them.
  [[nodiscard]] int32_t num_summed_buckets() const {
    return static_cast<int32_t>(
        std::ranges::count(versions_[0].buckets(), false, &GradientBucket::is_row_table));
  }

  // With two versions, W(t) is version t % 2, and both are W(0) at first. Batch t sees W(t-1), and
  // its update makes W(t+1), of W(t), in the same place: nothing else needs W(t-1) then.
  [[nodiscard]] size_t version_of(const StepInputs& inputs) const {
    if (versions_.size() == 1) return 0;
    return inputs.is_training ? static_cast<size_t>((inputs.step + 1) % 2) : newest_;
  }

  // A step that is begun ahead must leave the sums of gradients and the buffers alone until those
  // before it are done with them: its first forward is the first to come after that.
  Batch& open(Batch& batch) {
    if (batch.is_open) return batch;
    batch.is_open = true;
    if (!batch.inputs.is_training) return batch;
    for (const int32_t input : changed_) batch.before.push_back(versions_[0].value(input).clone());
    versions_[batch.version].zero_gradients();
    moving_.begin_step();
    return batch;
  }

  Batch& batch_of(const Action& action) { return batches_.at(at_hand_ + action.batch); }
  [[nodiscard]] MicroBatchId id_of(const Action& action) const {
    return {.step = at_hand_ + action.batch, .index = action.index};
  }

  [[nodiscard]] static size_t num_global_micro_batches(const Batch& batch) {
    size_t count = 0;
    for (const int32_t n : batch.inputs.shares.num_micro_batches) count += static_cast<size_t>(n);
    return count;
  }

  // Of this replica's micro-batch 0.
  [[nodiscard]] int64_t first_global_micro_batch(const Batch& batch) const {
    int64_t first = 0;
    for (int32_t r = 0; r < options_.replica; ++r)
      first += batch.inputs.shares.num_micro_batches[r];
    return first;
  }

  // An evaluation draws other numbers than training, and each evaluation the same.
  [[nodiscard]] uint64_t random_key(const StepInputs& inputs) const {
    constexpr uint64_t kOfEvaluation = 0x6576616c;
    const uint64_t key = mix_bits(options_.seed, static_cast<uint64_t>(inputs.step));
    return inputs.is_training ? key : mix_bits(key, kOfEvaluation);
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
    TRIREME_TRY(guard([&] { open(batch_of(action)); }));
    Batch& batch = batch_of(action);
    const MicroBatchId id = id_of(action);
    const int32_t virtual_stage = stage_.virtual_stages[action.chunk];
    if (ChunkKernels* before = own_chunk(virtual_stage - 1)) {
      chunk(action).accept_activations(id, before->send_activations(id));
    }
    TRIREME_TRY(const UserInputs* inputs, user_inputs(batch, action.index));
    TRIREME_TRY(chunk(action).forward(id, inputs->values, keep));
    if (inputs->num_readers == 0) batch.user_inputs.erase(action.index);
    if (virtual_stage + 1 < static_cast<int32_t>(options_.partition->virtual_stages.size())) {
      return Status();
    }
    const size_t slot = 2 * static_cast<size_t>(batch.step.first_micro_batch + action.index);
    batch.losses[slot] = chunk(action).loss().mean;
    batch.losses[slot + 1] = chunk(action).loss().items;
    return Status();
  }

  Status backward(const Action& action, WeightGradients when) {
    const MicroBatchId id = id_of(action);
    if (ChunkKernels* after = own_chunk(stage_.virtual_stages[action.chunk] + 1)) {
      TRIREME_TRY(std::vector<at::Tensor> gradients, after->send_gradients(id));
      chunk(action).accept_gradients(id, std::move(gradients));
    }
    return guard([&] { chunk(action).backward(id, when); });
  }

  Result<const UserInputs*> user_inputs(Batch& batch, int32_t index) {
    const auto [entry, is_new] = batch.user_inputs.try_emplace(index);
    UserInputs& inputs = entry->second;
    if (is_new) {
      inputs = {.values = std::vector<at::Tensor>(graph_.inputs.size()),
                .num_readers = chunks_.size()};
      TRIREME_TRY(std::vector<InputTensor> given,
                  batch.inputs.pipeline->take(batch.pipeline_step, index));
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

  Result<Message> reduction(Batch& batch, int32_t index) {
    const Parameters& parameters = versions_[batch.version];
    if (index == num_summed_buckets()) return moving_message(batch);
    Message message = hold({parameters.bucket_memory(index)});
    message.dtype = parameters.buckets()[index].dtype;
    return message;
  }

  static Result<Message> row_exchange(Batch& batch, int32_t index) {
    const at::Tensor tensor = batch.rows->message(index);
    if (!tensor.defined()) return Message();
    Message message = hold({tensor});
    message.dtype = tensor.scalar_type() == at::kDouble ? DType::kFloat64 : DType::kFloat32;
    return message;
  }

  Result<Message> tied_reduction(const Batch& batch, int32_t index) {
    const int32_t input = options_.partition->tied[tied_groups_with_gradient()[index]].input;
    const at::Tensor& accumulator = versions_[batch.version].accumulator(input);
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

  Result<Message> scalars(Batch& batch, ScalarExchange exchange) {
    if (exchange == ScalarExchange::kSquaredNorms) {
      Parameters& parameters = versions_[batch.version];
      divide_gradients(batch);
      batch.squares.assign(graph_.inputs.size(), 0.0);
      if (options_.replica == 0) {
        ParameterUpdate::fill_squares(parameters, *options_.partition, options_.stage,
                                      batch.squares);
      }
    }
    std::vector<double>& numbers =
        exchange == ScalarExchange::kLosses ? batch.losses : batch.squares;
    Message message;
    message.parts = {std::as_writable_bytes(std::span(numbers))};
    message.dtype = DType::kFloat64;
    return message;
  }

  // Every rank fills its own slots and zero elsewhere, so the sum over ranks is exact.
  static Status finish_losses(Batch& batch) {
    batch.outcome = outcome_of(batch.losses, batch.inputs.shares.num_micro_batches);
    return Status();
  }

  Status finish_norms(Batch& batch) {
    double sum = 0;
    for (const double square : batch.squares) sum += square;
    batch.outcome.gradient_norm = std::sqrt(sum);
    if (!options_.clip_norm.has_value()) return Status();
    return guard([&] {
      ParameterUpdate::clip(versions_[batch.version], *batch.outcome.gradient_norm,
                            *options_.clip_norm);
    });
  }

  void update(Batch& batch) {
    const StepOutcome& outcome = batch.outcome;
    Parameters& parameters = versions_[batch.version];
    divide_gradients(batch);
    // Nothing to learn from, or numbers that would poison the weights: the run ends after this.
    // Batches that have begun by then change nothing either.
    const bool learns = outcome.items > 0 && std::isfinite(outcome.loss) &&
                        std::isfinite(outcome.gradient_norm.value_or(0));
    if (learns && !has_fault_) {
      if (batch.version != newest_) {
        parameters.copy_weights(versions_[newest_], update_.changed_rows());
      }
      update_.step(parameters, batch.inputs.lr);
      newest_ = batch.version;
      return;
    }
    if (!has_fault_) before_fault_ = batch.before;
    has_fault_ = versions_.size() == 2;
    const at::NoGradGuard no_grad;
    size_t next = 0;
    for (const int32_t input : changed_) {
      at::Tensor buffer = versions_[0].value(input);
      buffer.copy_(before_fault_[next++]);
    }
  }

  Result<Message> moving_message(Batch& batch) {
    const std::vector<int32_t>& counts = batch.inputs.shares.num_micro_batches;
    int64_t later = 0;
    for (size_t r = static_cast<size_t>(options_.replica) + 1; r < counts.size(); ++r) {
      later += counts[r];
    }
    batch.moving_sum = moving_.contribution(later);
    Message message = hold({batch.moving_sum});
    message.dtype = DType::kFloat64;
    return message;
  }

  StageOptions options_;
  const Graph& graph_;
  const Stage& stage_;
  std::vector<Parameters> versions_;
  size_t newest_ = 0;  // of them
  MovingAverages moving_;
  std::vector<std::unique_ptr<ChunkKernels>> chunks_;
  std::set<int32_t> changed_;  // buffers that the forward pass changes, as graph inputs
  ParameterUpdate update_;
  OnFinal on_final_;
  bool has_fault_ = false;                // a batch was not learnt from, and no other one will
  std::vector<at::Tensor> before_fault_;  // its `before`

  std::map<int64_t, Batch> batches_;  // by number of the step: the one at hand, and its neighbours
  int64_t at_hand_ = -1;
};

}  // namespace

Result<std::unique_ptr<StageKernels>> StageKernels::make(const StageOptions& options) {
  auto kernels = std::make_unique<TorchStageKernels>(options);
  TRIREME_TRY(kernels->initialize());
  return std::unique_ptr<StageKernels>(std::move(kernels));
}

}  // namespace trireme
