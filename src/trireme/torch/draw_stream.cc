#include "trireme/torch/draw_stream.h"

#include <cmath>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "trireme/base/philox.h"
#include "trireme/torch/parallel.h"

namespace trireme {
namespace {

__extension__ using Wide = unsigned __int128;

// Elements that are worth a thread of their own.
constexpr int64_t kGrain = 8192;

// make(64 random bits) for each element; two of them a Philox call.
template <typename Number, typename Make>
at::Tensor draw(at::IntArrayRef sizes, const DrawStream& stream, at::ScalarType type,
                const Make& make) {
  at::Tensor out = at::empty(sizes, at::TensorOptions().dtype(type));
  const SampleView view = sample_view(sizes, stream);
  auto* to = out.mutable_data_ptr<Number>();
  const PhiloxKey key = {static_cast<uint32_t>(stream.key),
                         static_cast<uint32_t>(stream.key >> 32)};
  const auto fill = [&](int64_t at, int64_t count, int64_t first, uint64_t sample) {
    const auto low = static_cast<uint32_t>(sample);
    const auto high = static_cast<uint32_t>(sample >> 32);
    for (int64_t i = 0; i < count;) {
      const auto call = static_cast<uint64_t>(first + i) / 2;
      const PhiloxCounter words =
          philox({static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32), low, high}, key);
      for (int64_t lane = (first + i) % 2; lane < 2 && i < count; ++lane, ++i) {
        to[at + i] = make(words[2 * lane] | uint64_t{words[2 * lane + 1]} << 32);
      }
    }
  };
  for_each_chunk(out.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { for_each_span(view, begin, end, fill); });
  return out;
}

}  // namespace

DrawStream substream(const DrawStream& stream, uint64_t index) {
  DrawStream other = stream;
  other.key = mix_bits(stream.key, index);
  return other;
}

SampleView sample_view(at::IntArrayRef sizes, const DrawStream& stream) {
  SampleView view{.rest = c10::multiply_integers(sizes)};
  if (stream.batch_dim < 0) return view;
  const int64_t rows = sizes[stream.batch_dim];
  TORCH_CHECK(stream.rows_per_sample > 0 && rows % stream.rows_per_sample == 0 &&
                  stream.rows_per_sample % stream.blocks == 0,
              "dim ", stream.batch_dim, " of a tensor of sizes ", sizes,
              " does not count samples of ", stream.rows_per_sample, " rows");
  view.blocks = stream.blocks * c10::multiply_integers(sizes.slice(0, stream.batch_dim));
  view.samples = rows / stream.rows_per_sample;
  view.first_sample = stream.first_sample;
  const int64_t spans = view.blocks * view.samples;
  view.rest = spans == 0 ? 0 : view.rest / spans;
  return view;
}

at::Tensor draw_unit(at::IntArrayRef sizes, const DrawStream& stream, int bits) {
  const double scale = std::ldexp(1.0, -bits);
  return draw<double>(sizes, stream, at::kDouble, [=](uint64_t random) {
    return static_cast<double>(random >> (64 - bits)) * scale;
  });
}

at::Tensor draw_open_unit(at::IntArrayRef sizes, const DrawStream& stream) {
  return draw_unit(sizes, stream, 52).add_(std::ldexp(1.0, -53));
}

at::Tensor draw_normal(at::IntArrayRef sizes, const DrawStream& stream) {
  return at::special_ndtri(draw_open_unit(sizes, stream));
}

at::Tensor draw_integers(at::IntArrayRef sizes, const DrawStream& stream, int64_t low,
                         uint64_t range) {
  return draw<int64_t>(sizes, stream, at::kLong, [=](uint64_t random) {
    // The high half of a product: even to range / 2^64.
    const auto drawn =
        range == 0 ? random : static_cast<uint64_t>((static_cast<Wide>(random) * range) >> 64);
    return static_cast<int64_t>(static_cast<uint64_t>(low) + drawn);
  });
}

}  // namespace trireme
