// What the operators of a transformer layer, of its embedding and of its head do, for one
// micro-batch on one of `tp` devices that share each layer as Megatron does (Shoeybi et al., arXiv
// 1909.08053): heads and the inner width of the feed-forward layer are divided, activations between
// them are whole, and two sums over the devices close each layer, forward and backward.
//
// Numbers are those of half-precision training: 2 bytes a number in weights and activations, the
// loss in float32. Attention is computed with its scores in memory (no flash attention).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/cost/device_model.h"
#include "trireme/cost/model_spec.h"

namespace trireme {

struct ShardedBatch {
  int64_t micro_batch = 1;  // samples
  int64_t tp = 1;           // devices that share a layer
};

// Operators of one layer. The backward pass without a recomputation.
[[nodiscard]] std::vector<OperatorWork> layer_forward_work(const ModelSpec& spec,
                                                           const ShardedBatch& batch);
[[nodiscard]] std::vector<OperatorWork> layer_backward_work(const ModelSpec& spec,
                                                            const ShardedBatch& batch);
// Both passes of the embedding, and of the head with the loss.
[[nodiscard]] std::vector<OperatorWork> embedding_work(const ModelSpec& spec,
                                                       const ShardedBatch& batch);
[[nodiscard]] std::vector<OperatorWork> head_work(const ModelSpec& spec, const ShardedBatch& batch);

// Of the activations between two layers: what a sum over tp devices or a next stage gets.
[[nodiscard]] double boundary_bytes(const ModelSpec& spec, const ShardedBatch& batch);
// Tokens of the embedding with what fills it up to a multiple of 128 a device.
[[nodiscard]] int64_t padded_vocab(const ModelSpec& spec, int64_t tp);

}  // namespace trireme
