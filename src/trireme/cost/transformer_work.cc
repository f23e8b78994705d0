#include "trireme/cost/transformer_work.h"

namespace trireme {
namespace {

constexpr double kElementBytes = 2;

// Bytes of the tensors that a layer's operators pass through the memory.
struct Sizes {
  int64_t tokens = 0;
  int64_t h = 0;       // width
  int64_t h_part = 0;  // a device's share of it
  int64_t head = 0;    // width of a head
  int64_t batch_heads = 0;
  double whole = 0;    // [tokens, h]
  double part = 0;     // [tokens, h / tp]
  double scores = 0;   // [micro_batch, heads / tp, seq, seq]
  double weights = 0;  // elements of the layer's matrices
  bool fuses_softmax = false;
};

Sizes sizes_of(const ModelSpec& spec, const ShardedBatch& batch) {
  Sizes sizes;
  sizes.tokens = batch.micro_batch * spec.seq;
  sizes.h = spec.hidden;
  sizes.h_part = spec.hidden / batch.tp;
  sizes.head = spec.hidden / spec.heads;
  sizes.batch_heads = batch.micro_batch * spec.heads / batch.tp;
  sizes.whole = boundary_bytes(spec, batch);
  sizes.part = sizes.whole / static_cast<double>(batch.tp);
  sizes.scores = static_cast<double>(sizes.batch_heads) * static_cast<double>(spec.seq) *
                 static_cast<double>(spec.seq) * kElementBytes;
  sizes.weights = 12 * static_cast<double>(sizes.h) * static_cast<double>(sizes.h_part);
  // Megatron's kernel takes whole groups of four rows of heads (fused_softmax.py,
  // is_kernel_available); else scale, mask and softmax are operators of their own, in float32.
  sizes.fuses_softmax = sizes.batch_heads % 4 == 0;
  return sizes;
}

OperatorWork matmul(const char* name, int64_t m, int64_t n, int64_t k, int64_t batch = 1) {
  return matmul_work(name, {.m = m, .n = n, .k = k, .batch = batch}, kElementBytes);
}

OperatorWork copying(const char* name, double bytes, double launches) {
  return {.name = name, .bytes = bytes, .launches = launches};
}

}  // namespace

double boundary_bytes(const ModelSpec& spec, const ShardedBatch& batch) {
  return static_cast<double>(batch.micro_batch * spec.seq) * static_cast<double>(spec.hidden) *
         kElementBytes;
}

int64_t padded_vocab(const ModelSpec& spec, int64_t tp) {
  const int64_t multiple = 128 * tp;
  return (spec.vocab + multiple - 1) / multiple * multiple;
}

std::vector<OperatorWork> layer_forward_work(const ModelSpec& spec, const ShardedBatch& batch) {
  const Sizes s = sizes_of(spec, batch);
  return {
      copying("layer_norm", 2 * 2 * s.whole, 2),
      matmul("query_key_value", s.tokens, 3 * s.h_part, s.h),
      copying("split_heads", 6 * s.part, 2),
      matmul("scores", spec.seq, spec.seq, s.head, s.batch_heads),
      copying("softmax", (s.fuses_softmax ? 2 : 8) * s.scores, s.fuses_softmax ? 1 : 7),
      copying("attention_dropout", 2.5 * s.scores, 1),  // the mask has a byte a number
      matmul("context", spec.seq, s.head, spec.seq, s.batch_heads),
      copying("join_heads", 2 * s.part, 1),
      matmul("attention_output", s.tokens, s.h, s.h_part),
      matmul("feed_forward_in", s.tokens, 4 * s.h_part, s.h),
      copying("bias_gelu", 2 * 4 * s.part, 1),
      matmul("feed_forward_out", s.tokens, s.h, 4 * s.h_part),
      copying("bias_dropout_add", 2 * 3.5 * s.whole, 2),
  };
}

std::vector<OperatorWork> layer_backward_work(const ModelSpec& spec, const ShardedBatch& batch) {
  const Sizes s = sizes_of(spec, batch);
  return {
      copying("bias_dropout_add", 2 * 3 * s.whole, 4),
      matmul("feed_forward_out_input", s.tokens, 4 * s.h_part, s.h),
      matmul("feed_forward_out_weight", 4 * s.h_part, s.h, s.tokens),
      copying("bias_gelu", 3 * 4 * s.part, 2),
      matmul("feed_forward_in_input", s.tokens, s.h, 4 * s.h_part),
      matmul("feed_forward_in_weight", s.h, 4 * s.h_part, s.tokens),
      matmul("attention_output_input", s.tokens, s.h_part, s.h),
      matmul("attention_output_weight", s.h_part, s.h, s.tokens),
      copying("join_heads", 2 * s.part, 1),
      matmul("context_scores", spec.seq, spec.seq, s.head, s.batch_heads),
      matmul("context_value", spec.seq, s.head, spec.seq, s.batch_heads),
      copying("attention_dropout", 2.5 * s.scores, 1),
      copying("softmax", (s.fuses_softmax ? 3 : 8) * s.scores, s.fuses_softmax ? 1 : 7),
      matmul("scores_query", spec.seq, s.head, spec.seq, s.batch_heads),
      matmul("scores_key", spec.seq, s.head, spec.seq, s.batch_heads),
      copying("split_heads", 6 * s.part, 3),
      matmul("query_key_value_input", s.tokens, s.h, 3 * s.h_part),
      matmul("query_key_value_weight", s.h, 3 * s.h_part, s.tokens),
      copying("layer_norm", 2 * 4 * s.whole, 4),
      // The gradient of the micro-batch and the sum so far are read, and the sum is written.
      copying("accumulate", 3 * kElementBytes * s.weights, 4),
  };
}

std::vector<OperatorWork> embedding_work(const ModelSpec& spec, const ShardedBatch& batch) {
  const int64_t vocab = padded_vocab(spec, batch.tp) / batch.tp;
  const double table =
      static_cast<double>(vocab) * static_cast<double>(spec.hidden) * kElementBytes;
  return {
      // Tokens, positions and dropout, forward and backward.
      copying("embedding", 6 * boundary_bytes(spec, batch), 10),
      // The gradient of the whole table is set to zero, then added to the sum so far.
      copying("embedding_gradient", 4 * table, 0),
  };
}

std::vector<OperatorWork> head_work(const ModelSpec& spec, const ShardedBatch& batch) {
  const Sizes s = sizes_of(spec, batch);
  const int64_t vocab = padded_vocab(spec, batch.tp) / batch.tp;
  // Megatron's vocab_parallel_cross_entropy, bytes a logit: to float32 6, maximum 4, subtract 8,
  // exponential 8, sum 4, divide 8; backward clone 8, scale 8, to half precision 6.
  const double logits = static_cast<double>(s.tokens) * static_cast<double>(vocab);
  return {
      matmul("head", s.tokens, vocab, s.h),
      copying("cross_entropy", 60 * logits, 20),
      matmul("head_input", s.tokens, s.h, vocab),
      matmul("head_weight", s.h, vocab, s.tokens),
  };
}

}  // namespace trireme
