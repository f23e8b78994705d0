// The inner loops of counter-based dropout. Element e of a sample takes bits 16 (e mod 8) .. + 15
// of Philox call e / 8 (counter: call, sample), and is kept where they are at least `threshold`.
//
// With AVX2, where the processor has it, or without: the same bits.
#pragma once

#include <cstdint>

namespace trireme {

struct DropSpan {
  uint64_t key = 0;
  uint64_t sample = 0;
  int64_t first = 0;       // the element within the sample at which the span begins
  uint32_t threshold = 0;  // p in units of 2^-16; REQUIRES: below 2^16
};

// out = in x scale where it is kept, else 0; `count` elements. In and out may be the same.
void drop(const float* in, float* out, int64_t count, const DropSpan& span, float scale);
void drop(const double* in, double* out, int64_t count, const DropSpan& span, double scale);
// out = 1 where it is kept, else 0.
void keep(uint8_t* out, int64_t count, const DropSpan& span);

// The plain loops, for the test that they do the same.
void drop_without_avx2(const float* in, float* out, int64_t count, const DropSpan& span,
                       float scale);

}  // namespace trireme
