// ChunkKernels: one virtual stage over libtorch: forward and backward of micro-batches, and the
// tensors that cross its borders. The chunks of a stage share its parameters.
//
//   chunk.begin_step(step)             a step ends with its last backward; two may be begun
//   chunk.receive_activations(k), chunk.forward(k, ...), chunk.send_activations(k)
//   chunk.receive_gradients(k), chunk.backward(k, ...), chunk.send_gradients(k)
//
// A micro-batch is forgotten when its gradients are sent; on the first virtual stage, which sends
// none, when its backward has run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include "trireme/base/result.h"
#include "trireme/data/batches.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/partition.h"
#include "trireme/torch/direct_gradients.h"
#include "trireme/torch/final_gradients.h"
#include "trireme/torch/interpreter.h"
#include "trireme/torch/parameters.h"
#include "trireme/torch/row_exchange.h"

namespace trireme {

// What the chunks of a stage have in common in a step.
struct ChunkStep {
  int64_t number = 0;                // tells it from others
  Parameters* parameters = nullptr;  // the version that its passes see
  bool is_training = true;
  bool splits_backward = false;  // some weight gradients are made later
  uint64_t random_key = 0;
  int64_t first_micro_batch = 0;              // of this replica, counted over all replicas
  std::vector<StepShares::Share> shares;      // by micro-batch of this replica
  std::vector<SymbolValues> symbols;          // the same
  FinalGradients* final_gradients = nullptr;  // learns which sums are whole; may be null
  RowExchange* rows = nullptr;                // learns which rows are read; may be null
};

// What a forward keeps for its backward: the graph of autograd, or only what recompute() needs.
enum class Keep : uint8_t { kGraph, kInput };
enum class WeightGradients : uint8_t { kNow, kLater };

struct MicroBatchId {
  int64_t step = 0;  // ChunkStep::number
  int32_t index = 0;
  auto operator<=>(const MicroBatchId&) const = default;
};

class ChunkKernels {
 public:
  struct Loss {
    double mean = 0;  // over the items; 0 when there are none
    double items = 0;
  };

  // All outlive it.
  ChunkKernels(const Graph& graph, const Partition& partition, int32_t virtual_stage);

  // `step` outlives end_step().
  Status begin_step(const ChunkStep& step);
  // Forgets what is left of it.
  void end_step(int64_t number);

  // `user_inputs` by index into Graph::inputs.
  Status forward(MicroBatchId id, const std::vector<at::Tensor>& user_inputs, Keep keep);
  // Builds the graph of a forward that kept its input: with the same random numbers, and without
  // another change of the buffers.
  Status recompute(MicroBatchId id);
  void backward(MicroBatchId id, WeightGradients when);
  // What the backward left for later.
  void make_weight_gradients(MicroBatchId id);

  // Of the last forward or recompute. REQUIRES: the last virtual stage.
  [[nodiscard]] const Loss& loss() const { return loss_; }

  // What the forward made, without its graph.
  [[nodiscard]] std::vector<at::Tensor> send_activations(MicroBatchId id);
  // Empty tensors, to be filled before the forward.
  Result<std::vector<at::Tensor>> receive_activations(MicroBatchId id);
  // Of the gradients of what was received; zeros where there are none.
  Result<std::vector<at::Tensor>> send_gradients(MicroBatchId id);
  Result<std::vector<at::Tensor>> receive_gradients(MicroBatchId id);
  // From and to a chunk of the same rank: what that one sends.
  void accept_activations(MicroBatchId id, std::vector<at::Tensor> activations);
  void accept_gradients(MicroBatchId id, std::vector<at::Tensor> gradients);

  // What it reads, as indices into Graph::inputs.
  [[nodiscard]] const std::vector<int32_t>& inputs() const { return stage_.inputs; }
  // The buffers that its forward changes, as indices into Graph::inputs.
  [[nodiscard]] const std::vector<int32_t>& changed_buffers() const { return changed_; }

 private:
  // Between its forward and its backward.
  struct MicroBatch {
    SymbolValues symbols;
    std::vector<at::Tensor> received;  // leaves, as VirtualStage::receives
    std::vector<at::Tensor> outgoing;  // as VirtualStage::sends, until they are sent
    // The ends of the graph: of each send that carries a gradient, or of the loss.
    torch::autograd::edge_list edges;
    std::vector<at::Tensor> gradients;  // received, as `edges`
    // What a recomputation needs besides `received`.
    std::vector<at::Tensor> user_inputs;
    std::vector<at::Tensor> buffers;  // as changed_, before the forward
  };
  enum class Run : uint8_t { kForward, kForwardOnly, kRecompute };

  MicroBatch& micro_batch(MicroBatchId id);
  [[nodiscard]] const ChunkStep& step_of(MicroBatchId id) const { return *steps_.at(id.step); }
  Status run(MicroBatch& batch, MicroBatchId id, const std::vector<at::Tensor>& user_inputs,
             Run run);
  // null: no one wants to know.
  GradientShare* share_of(MicroBatchId id);
  void end_share(MicroBatchId id);
  void keep_outputs(MicroBatch& batch, const std::vector<at::Tensor>& values, Run run);
  void keep_loss(MicroBatch& batch, const std::vector<at::Tensor>& values, MicroBatchId id,
                 Run run);
  [[nodiscard]] double count_items(const MicroBatch& batch, const std::vector<at::Tensor>& values,
                                   MicroBatchId id) const;

  const Graph& graph_;
  const VirtualStage& stage_;
  bool is_first_;
  bool is_last_;
  std::vector<int32_t> changed_;
  std::vector<ValueId> kept_;  // values that remain after a run
  std::unique_ptr<Interpreter> training_;
  std::unique_ptr<Interpreter> evaluation_;

  // Of the steps that are begun.
  std::map<int64_t, const ChunkStep*> steps_;
  std::map<MicroBatchId, MicroBatch> micro_batches_;
  std::map<MicroBatchId, DeferredGradients> deferred_;
  std::map<MicroBatchId, GradientShare> shares_;  // from a forward with graph to its last gradient
  Loss loss_;
};

}  // namespace trireme
