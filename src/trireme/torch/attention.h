// Attention with dropout: torch's own takes the plain path on the CPU anyway, with its own
// generator.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/torch/dropout.h"

namespace trireme {

struct AttentionOptions {
  double dropout_p = 0;
  bool is_causal = false;
  std::optional<double> scale;  // default 1 / sqrt(head dim)
  bool enable_gqa = false;      // fewer key and value heads than query heads
};

// softmax(q k^T * scale + mask) with counter-based dropout, times v; as
// aten::scaled_dot_product_attention. q, k, v are [..., sequence, head dim].
[[nodiscard]] at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v,
                                                const std::optional<at::Tensor>& mask,
                                                const AttentionOptions& options,
                                                const DrawStream& stream);

}  // namespace trireme
