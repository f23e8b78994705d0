#include "trireme/torch/chunk_kernels.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/plan/gradients.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/tensors.h"

namespace trireme {

ChunkKernels::ChunkKernels(const Graph& graph, const Partition& partition, int32_t virtual_stage)
    : graph_(graph),
      stage_(partition.virtual_stages[virtual_stage]),
      is_first_(virtual_stage == 0),
      is_last_(virtual_stage + 1 == static_cast<int32_t>(partition.virtual_stages.size())),
      changed_(trireme::changed_buffers(graph, stage_)) {
  for (const BoundaryValue& send : stage_.sends) kept_.push_back(send.value);
  if (!is_last_) return;
  kept_.push_back(graph_.loss);
  if (const auto* items = std::get_if<ValueId>(&graph_.items)) kept_.push_back(*items);
}

Status ChunkKernels::begin_step(const ChunkStep& step) {
  steps_[step.number] = &step;
  std::unique_ptr<Interpreter>& interpreter = step.is_training ? training_ : evaluation_;
  if (interpreter != nullptr) return Status();
  TRIREME_TRY(interpreter,
              Interpreter::make(graph_, stage_.nodes, kept_,
                                step.is_training ? Mode::kTraining : Mode::kEvaluation));
  return Status();
}

void ChunkKernels::end_step(int64_t number) {
  const auto is_of_step = [&](const auto& entry) { return entry.first.step == number; };
  std::erase_if(micro_batches_, is_of_step);
  std::erase_if(deferred_, is_of_step);
  std::erase_if(shares_, is_of_step);
  steps_.erase(number);
}

ChunkKernels::MicroBatch& ChunkKernels::micro_batch(MicroBatchId id) {
  const auto [entry, is_new] = micro_batches_.try_emplace(id);
  if (is_new) entry->second.symbols = step_of(id).symbols[id.index];
  return entry->second;
}

// --- forward -------------------------------------------------------------------------------------

Status ChunkKernels::forward(MicroBatchId id, const std::vector<at::Tensor>& user_inputs,
                             Keep keep) {
  const ChunkStep& step = step_of(id);
  MicroBatch& batch = micro_batch(id);
  const bool builds_graph = step.is_training && keep == Keep::kGraph;
  if (step.is_training && keep == Keep::kInput) {
    batch.user_inputs = user_inputs;
    TRIREME_TRY(guard([&] {
      for (const int32_t input : changed_) {
        batch.buffers.push_back(step.parameters->value(input).clone());
      }
    }));
  }
  TRIREME_TRY(run(batch, id, user_inputs, builds_graph ? Run::kForward : Run::kForwardOnly));
  if (!step.is_training) batch.received.clear();
  return Status();
}

Status ChunkKernels::recompute(MicroBatchId id) {
  MicroBatch& batch = micro_batches_.at(id);
  // The symbols that the data decides are decided again.
  batch.symbols = step_of(id).symbols[id.index];
  const std::vector<at::Tensor> user_inputs = std::move(batch.user_inputs);
  return run(batch, id, user_inputs, Run::kRecompute);
}

// A forward works on its own copies of the buffers that it changes: the backward of an earlier
// micro-batch may still need their values of then, and an evaluation leaves them as they were.
Status ChunkKernels::run(MicroBatch& batch, MicroBatchId id,
                         const std::vector<at::Tensor>& user_inputs, Run run) {
  const ChunkStep& step = step_of(id);
  std::vector<at::Tensor> values(graph_.values.size());
  for (const int32_t input : stage_.inputs) {
    const bool is_user = graph_.inputs[input].kind == GraphInput::Kind::kUser;
    values[graph_.inputs[input].value.value] =
        is_user ? user_inputs[input] : step.parameters->value(input);
  }
  std::vector<at::Tensor> changed;  // the interpreter drops values after their last use
  TRIREME_TRY(guard([&] {
    for (size_t i = 0; i < changed_.size(); ++i) {
      at::Tensor& value = values[graph_.inputs[changed_[i]].value.value];
      value = run == Run::kRecompute ? std::move(batch.buffers[i]) : value.clone();
      changed.push_back(value);
    }
  }));
  for (size_t i = 0; i < stage_.receives.size(); ++i) {
    values[stage_.receives[i].value.value] = batch.received[i];
  }
  InterpreterRun context{.symbols = batch.symbols,
                         .random_key = step.random_key,
                         .micro_batch = step.first_micro_batch + id.index,
                         .first_sample = step.shares[id.index].first,
                         .num_samples = step.shares[id.index].size,
                         .builds_graph = run != Run::kForwardOnly,
                         .splits_backward = step.splits_backward,
                         .share = nullptr,
                         .rows = run == Run::kRecompute ? nullptr : step.rows};
  if (step.final_gradients != nullptr && context.builds_graph) {
    context.share =
        &shares_.try_emplace(id, *step.final_gradients, stage_.inputs, graph_.inputs.size())
             .first->second;
  }
  TRIREME_TRY((step.is_training ? training_ : evaluation_)->run(values, context));
  batch.symbols = std::move(context.symbols);
  return guard([&] {
    if (step.is_training && run != Run::kRecompute) {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < changed.size(); ++i) {
        at::Tensor buffer = step.parameters->value(changed_[i]);
        buffer.copy_(changed[i]);
      }
    }
    keep_outputs(batch, values, run);
    if (is_last_) keep_loss(batch, values, id, run);
  });
}

void ChunkKernels::keep_outputs(MicroBatch& batch, const std::vector<at::Tensor>& values, Run run) {
  for (const BoundaryValue& send : stage_.sends) {
    const at::Tensor& value = values[send.value.value];
    const TensorType& type = graph_.values[send.value.value].type;
    TORCH_CHECK(value.scalar_type() == scalar_type(type.dtype), "%",
                graph_.values[send.value.value].name, " is ", value.scalar_type());
    if (send.carries_gradient && run != Run::kForwardOnly) {
      // Only the end of the graph is kept; the tensor goes when it is sent.
      batch.edges.push_back(value.requires_grad() ? torch::autograd::impl::gradient_edge(value)
                                                  : torch::autograd::Edge());
    }
    // The same strides on both sides of a border: those of the archive.
    if (run != Run::kRecompute) {
      batch.outgoing.push_back(as_archived(value.detach(), type, batch.symbols));
    }
  }
}

double ChunkKernels::count_items(const MicroBatch& batch, const std::vector<at::Tensor>& values,
                                 MicroBatchId id) const {
  if (const auto* value = std::get_if<ValueId>(&graph_.items)) {
    return values[value->value].item().toDouble();
  }
  const auto* expression = std::get_if<SymExpr>(&graph_.items);
  if (expression == nullptr) return static_cast<double>(step_of(id).shares[id.index].size);
  Result<SymValue> value = evaluate(*expression, batch.symbols);
  TORCH_CHECK(value.ok(), "the number of items has no value");
  return std::holds_alternative<int64_t>(value.value())
             ? static_cast<double>(std::get<int64_t>(value.value()))
             : std::get<double>(value.value());
}

void ChunkKernels::keep_loss(MicroBatch& batch, const std::vector<at::Tensor>& values,
                             MicroBatchId id, Run run) {
  const at::Tensor& loss = values[graph_.loss.value];
  loss_.items = count_items(batch, values, id);
  loss_.mean = loss_.items == 0 ? 0.0 : loss.item().toDouble();
  if (run == Run::kForwardOnly || loss_.items <= 0 || !loss.requires_grad()) return;
  batch.edges.push_back(torch::autograd::impl::gradient_edge(loss));
  batch.gradients.push_back(at::full({}, loss_.items, loss.options().requires_grad(false)));
}

// --- backward ------------------------------------------------------------------------------------

void ChunkKernels::backward(MicroBatchId id, WeightGradients when) {
  MicroBatch& batch = micro_batches_.at(id);
  torch::autograd::edge_list edges;
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < batch.edges.size(); ++i) {
    if (!batch.edges[i].is_valid()) continue;  // the value needed no gradient after all
    edges.push_back(batch.edges[i]);
    gradients.push_back(batch.gradients[i]);
  }
  batch.gradients.clear();
  if (!edges.empty()) {
    DeferredGradients* later = when == WeightGradients::kLater ? &deferred_[id] : nullptr;
    const DeferredGradients::Scope scope(later);
    const GradientShare::Scope share(share_of(id));
    torch::autograd::Engine::get_default_engine().execute(
        edges, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
  }
  batch.edges.clear();
  step_of(id).parameters->check_gradients();
  if (when == WeightGradients::kNow) end_share(id);
  // Every other chunk sends gradients, be it none of them, and forgets the micro-batch then.
  if (is_first_) micro_batches_.erase(id);
}

void ChunkKernels::make_weight_gradients(MicroBatchId id) {
  const auto found = deferred_.find(id);
  if (found != deferred_.end()) {
    const GradientShare::Scope share(share_of(id));
    found->second.run();
    deferred_.erase(found);
  }
  end_share(id);
}

GradientShare* ChunkKernels::share_of(MicroBatchId id) {
  const auto found = shares_.find(id);
  return found == shares_.end() ? nullptr : &found->second;
}

void ChunkKernels::end_share(MicroBatchId id) {
  const auto found = shares_.find(id);
  if (found == shares_.end()) return;
  found->second.close();
  shares_.erase(found);
}

// --- borders -------------------------------------------------------------------------------------

std::vector<at::Tensor> ChunkKernels::send_activations(MicroBatchId id) {
  return std::move(micro_batches_.at(id).outgoing);
}

Result<std::vector<at::Tensor>> ChunkKernels::receive_activations(MicroBatchId id) {
  MicroBatch& batch = micro_batch(id);
  std::vector<at::Tensor> activations;
  for (const BoundaryValue& receive : stage_.receives) {
    TRIREME_TRY(at::Tensor tensor,
                empty_tensor(graph_.values[receive.value.value].type, batch.symbols));
    activations.push_back(tensor);
  }
  // Their storage is filled through its memory: autograd sees a leaf only once it is complete, and
  // nothing writes to it later.
  accept_activations(id, activations);
  return activations;
}

void ChunkKernels::accept_activations(MicroBatchId id, std::vector<at::Tensor> activations) {
  for (size_t i = 0; i < stage_.receives.size(); ++i) {
    if (stage_.receives[i].carries_gradient && step_of(id).is_training) {
      activations[i].set_requires_grad(true);
    }
  }
  micro_batch(id).received = std::move(activations);
}

Result<std::vector<at::Tensor>> ChunkKernels::send_gradients(MicroBatchId id) {
  MicroBatch& batch = micro_batches_.at(id);
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
  micro_batches_.erase(id);
  return gradients;
}

Result<std::vector<at::Tensor>> ChunkKernels::receive_gradients(MicroBatchId id) {
  MicroBatch& batch = micro_batch(id);
  std::vector<at::Tensor> gradients;
  for (const BoundaryValue& send : stage_.sends) {
    if (!send.carries_gradient) continue;
    TRIREME_TRY(at::Tensor tensor,
                empty_tensor(graph_.values[send.value.value].type, batch.symbols));
    gradients.push_back(tensor);
  }
  accept_gradients(id, gradients);
  return gradients;
}

void ChunkKernels::accept_gradients(MicroBatchId id, std::vector<at::Tensor> gradients) {
  micro_batch(id).gradients = std::move(gradients);
}

}  // namespace trireme
