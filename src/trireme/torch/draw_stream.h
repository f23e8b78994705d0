// Counted random numbers of one tensor: each element's number follows from (key, sample, element
// within the sample) alone, so it depends neither on the parallel layout, nor on the micro-batch
// size, nor on the number of threads, and can be had again at any time.
//
// An element's place is its index in the tensor laid out as [blocks, samples, rest]: within its
// sample it is element block x rest size + rest index.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme {

// Where a tensor lies in the batch: dim `batch_dim` counts [blocks, samples, rows of a sample],
// `rows_per_sample` being blocks x rows; the first is sample `first_sample` of the step. No batch
// dim (-1): all elements are of one sample.
struct DrawStream {
  uint64_t key = 0;  // of seed, step, node, and where no dim is the batch's, of the micro-batch
  int64_t first_sample = 0;
  int64_t batch_dim = -1;
  int64_t rows_per_sample = 1;
  int64_t blocks = 1;
};

// The same places under another key: further numbers of one node.
[[nodiscard]] DrawStream substream(const DrawStream& stream, uint64_t index);

struct SampleView {
  int64_t blocks = 1;
  int64_t samples = 1;
  int64_t rest = 0;
  int64_t first_sample = 0;
};
// Throws when dim `batch_dim` does not count whole samples.
[[nodiscard]] SampleView sample_view(at::IntArrayRef sizes, const DrawStream& stream);

// Calls run(place in memory, count, element within the sample, sample) for the spans of elements of
// one sample that make up the places begin .. end of a contiguous tensor.
template <typename Run>
void for_each_span(const SampleView& view, int64_t begin, int64_t end, const Run& run) {
  while (begin < end) {
    const int64_t span = begin / view.rest;
    const int64_t within = begin % view.rest;
    const int64_t count = std::min(view.rest - within, end - begin);
    run(begin, count, span / view.samples * view.rest + within,
        static_cast<uint64_t>(view.first_sample + span % view.samples));
    begin += count;
  }
}

// Multiples of 2^-bits in [0, 1), as float64. REQUIRES: bits <= 53.
[[nodiscard]] at::Tensor draw_unit(at::IntArrayRef sizes, const DrawStream& stream, int bits = 53);
// In (0, 1), symmetric about 1/2, as float64.
[[nodiscard]] at::Tensor draw_open_unit(at::IntArrayRef sizes, const DrawStream& stream);
// Mean 0, deviation 1, as float64.
[[nodiscard]] at::Tensor draw_normal(at::IntArrayRef sizes, const DrawStream& stream);
// low, low + 1, .. low + range - 1 as int64; range 0 stands for 2^64.
[[nodiscard]] at::Tensor draw_integers(at::IntArrayRef sizes, const DrawStream& stream, int64_t low,
                                       uint64_t range);

}  // namespace trireme
