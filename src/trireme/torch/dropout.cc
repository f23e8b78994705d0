#include "trireme/torch/dropout.h"

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/philox.h"

namespace trireme {
namespace {

// Eight 16-bit numbers a Philox call.
constexpr int64_t kElementsACall = 8;

// Multiplies `count` elements, the first being element `first` of its sample, by 0 or `scale`.
// REQUIRES: the 64-bit element index / 8 fits 63 bits.
template <typename T>
void drop_span(const T* in, T* out, int64_t count, int64_t first, uint64_t sample, uint64_t key,
               uint32_t threshold, T scale) {
  const PhiloxKey philox_key = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  int64_t i = 0;
  while (i < count) {
    const auto call = static_cast<uint64_t>((first + i) / kElementsACall);
    const PhiloxCounter words =
        philox({static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32),
                static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
               philox_key);
    for (int64_t lane = (first + i) % kElementsACall; lane < kElementsACall && i < count;
         ++lane, ++i) {
      const uint32_t number = (words[lane / 2] >> (16 * (lane % 2))) & 0xFFFF;
      out[i] = number >= threshold ? in[i] * scale : T(0);
    }
  }
}

at::Tensor apply_mask(const at::Tensor& given, double p, const DropoutKey& key) {
  const at::Tensor x = given.contiguous();
  at::Tensor out = at::empty_like(x);
  const auto threshold = static_cast<uint32_t>(std::lround(p * 65536));
  if (threshold >= 65536) return out.zero_();
  const double scale = 65536.0 / (65536.0 - threshold);
  // [outer, sample, inner]: element index within a sample = outer * inner_size + inner.
  int64_t outer = 1;
  int64_t samples = 1;
  int64_t inner = x.numel();
  int64_t first_sample = 0;
  if (key.batch_dim >= 0) {
    first_sample = key.first_sample;
    for (int64_t d = 0; d < key.batch_dim; ++d) outer *= x.size(d);
    samples = x.size(key.batch_dim) / key.rows_per_sample;
    inner = samples * outer == 0 ? 0 : x.numel() / (samples * outer);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "dropout", [&] {
    const auto* in = x.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t s = 0; s < samples; ++s) {
        const int64_t offset = (o * samples + s) * inner;
        drop_span<scalar_t>(in + offset, to + offset, inner, o * inner,
                            static_cast<uint64_t>(first_sample + s), key.key, threshold,
                            static_cast<scalar_t>(scale));
      }
    }
  });
  return out;
}

struct CounterDropout : public torch::autograd::Function<CounterDropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double p, const DropoutKey& key) {
    context->saved_data["p"] = p;
    context->saved_data["key"] = static_cast<int64_t>(key.key);
    context->saved_data["first_sample"] = key.first_sample;
    context->saved_data["batch_dim"] = key.batch_dim;
    context->saved_data["rows_per_sample"] = key.rows_per_sample;
    return apply_mask(x, p, key);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto& saved = context->saved_data;
    const DropoutKey key = {.key = static_cast<uint64_t>(saved["key"].toInt()),
                            .first_sample = saved["first_sample"].toInt(),
                            .batch_dim = saved["batch_dim"].toInt(),
                            .rows_per_sample = saved["rows_per_sample"].toInt()};
    return {apply_mask(gradients[0], saved["p"].toDouble(), key), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor counter_dropout(const at::Tensor& x, double p, const DropoutKey& key) {
  return CounterDropout::apply(x, p, key);
}

}  // namespace trireme
