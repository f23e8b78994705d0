#include "trireme/torch/attention.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

namespace trireme {

at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::optional<at::Tensor>& mask,
                                  const AttentionOptions& options, const DrawStream& stream) {
  at::Tensor keys = k;
  at::Tensor values = v;
  if (options.enable_gqa) {
    keys = keys.repeat_interleave(q.size(-3) / k.size(-3), -3);
    values = values.repeat_interleave(q.size(-3) / v.size(-3), -3);
  }
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  at::Tensor scores = at::matmul(q, keys.transpose(-2, -1)) * scale;
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  if (options.is_causal) {
    const at::Tensor allowed =
        at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(allowed.logical_not(), minus_infinity);
  }
  if (mask.has_value() && mask->defined()) {
    scores = mask->scalar_type() == at::kBool
                 ? scores.masked_fill(mask->logical_not(), minus_infinity)
                 : scores + *mask;
  }
  const at::Tensor weights =
      counter_dropout(at::_safe_softmax(scores, -1), options.dropout_p, stream);
  return at::matmul(weights, values);
}

}  // namespace trireme
