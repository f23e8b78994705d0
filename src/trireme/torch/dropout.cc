#include "trireme/torch/dropout.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/torch/dropout_kernel.h"
#include "trireme/torch/parallel.h"

namespace trireme {
namespace {

// Elements that are worth a thread of their own.
constexpr int64_t kGrain = 32768;

template <typename Number>
void drop_elements(const at::Tensor& x, at::Tensor& out, const SampleView& view, DropSpan shared,
                   double scale) {
  const auto* in = x.const_data_ptr<Number>();
  auto* to = out.mutable_data_ptr<Number>();
  const auto run = [&](int64_t at, int64_t count, int64_t first, uint64_t sample) {
    DropSpan span = shared;
    span.first = first;
    span.sample = sample;
    if constexpr (std::is_same_v<Number, float> || std::is_same_v<Number, double>) {
      drop(in + at, to + at, count, span, static_cast<Number>(scale));
    } else {
      std::vector<uint8_t> kept(static_cast<size_t>(count));
      keep(kept.data(), count, span);
      const auto factor = static_cast<Number>(scale);
      for (int64_t i = 0; i < count; ++i)
        to[at + i] = kept[i] != 0 ? in[at + i] * factor : Number(0);
    }
  };
  for_each_chunk(x.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { for_each_span(view, begin, end, run); });
}

at::Tensor apply_mask(const at::Tensor& given, double p, const DrawStream& stream) {
  const at::Tensor x = given.contiguous();
  at::Tensor out = at::empty_like(x);
  const auto threshold = static_cast<uint32_t>(std::lround(p * 65536));
  if (threshold >= 65536) return out.zero_();
  const double scale = 65536.0 / (65536.0 - threshold);
  const SampleView view = sample_view(x.sizes(), stream);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "dropout", [&] {
    drop_elements<scalar_t>(x, out, view, {.key = stream.key, .threshold = threshold}, scale);
  });
  return out;
}

struct CounterDropout : public torch::autograd::Function<CounterDropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double p, const DrawStream& stream) {
    context->saved_data["p"] = p;
    context->saved_data["key"] = static_cast<int64_t>(stream.key);
    context->saved_data["first_sample"] = stream.first_sample;
    context->saved_data["batch_dim"] = stream.batch_dim;
    context->saved_data["rows_per_sample"] = stream.rows_per_sample;
    context->saved_data["blocks"] = stream.blocks;
    return apply_mask(x, p, stream);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto& saved = context->saved_data;
    const DrawStream stream = {.key = static_cast<uint64_t>(saved["key"].toInt()),
                               .first_sample = saved["first_sample"].toInt(),
                               .batch_dim = saved["batch_dim"].toInt(),
                               .rows_per_sample = saved["rows_per_sample"].toInt(),
                               .blocks = saved["blocks"].toInt()};
    return {apply_mask(gradients[0], saved["p"].toDouble(), stream), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor counter_dropout(const at::Tensor& x, double p, const DrawStream& stream) {
  return CounterDropout::apply(x, p, stream);
}

}  // namespace trireme
