#include "trireme/torch/dropout_kernel.h"

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "trireme/base/philox.h"

#define TRIREME_AVX2 __attribute__((target("avx2")))

namespace trireme {
namespace {

constexpr int64_t kNumbersACall = 8;
constexpr int64_t kCallsAtOnce = 8;
constexpr int64_t kBlock = 1024;  // numbers; they stay in the first-level cache

struct Plain {
  // Fills the numbers of `num_calls` calls from `call` on, rounded up to kCallsAtOnce.
  static void fill(uint16_t* to, int64_t num_calls, uint64_t call, const DropSpan& span) {
    const PhiloxKey key = {static_cast<uint32_t>(span.key), static_cast<uint32_t>(span.key >> 32)};
    for (int64_t i = 0; i < num_calls; ++i, ++call) {
      const PhiloxCounter words =
          philox({static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32),
                  static_cast<uint32_t>(span.sample), static_cast<uint32_t>(span.sample >> 32)},
                 key);
      for (int64_t lane = 0; lane < kNumbersACall; ++lane) {
        to[i * kNumbersACall + lane] = static_cast<uint16_t>(words[lane / 2] >> (16 * (lane % 2)));
      }
    }
  }

  template <typename Number>
  static void apply(const Number* in, Number* out, int64_t count, const uint16_t* numbers,
                    uint32_t threshold, Number scale) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = numbers[i] >= threshold ? in[i] * scale : Number(0);
  }
};

#if defined(__x86_64__)
struct Avx2 {
  // Four calls: each word in the low half of a 64-bit lane; the high halves hold what is left of
  // products and are never read.
  struct Words {
    __m256i w0, w1, w2, w3;
  };

  TRIREME_AVX2 static Words counters(uint64_t call, uint64_t sample) {
    const __m256i calls = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(call)),
                                           _mm256_set_epi64x(3, 2, 1, 0));
    const __m256i samples = _mm256_set1_epi64x(static_cast<int64_t>(sample));
    return {calls, _mm256_srli_epi64(calls, 32), samples, _mm256_srli_epi64(samples, 32)};
  }

  TRIREME_AVX2 static void round(Words& words, __m256i key0, __m256i key1) {
    const __m256i product0 = _mm256_mul_epu32(words.w0, _mm256_set1_epi64x(0xD2511F53));
    const __m256i product1 = _mm256_mul_epu32(words.w2, _mm256_set1_epi64x(0xCD9E8D57));
    words.w0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), words.w1), key0);
    words.w1 = product1;
    words.w2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), words.w3), key1);
    words.w3 = product0;
  }

  // In order of the calls, each 128 bits.
  TRIREME_AVX2 static void store(uint16_t* to, const Words& words) {
    const __m256i low = _mm256_blend_epi32(words.w0, _mm256_slli_epi64(words.w1, 32), 0b10101010);
    const __m256i high = _mm256_blend_epi32(words.w2, _mm256_slli_epi64(words.w3, 32), 0b10101010);
    const __m256i even = _mm256_unpacklo_epi64(low, high);  // calls 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(low, high);   // calls 1 and 3
    auto* place = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(place, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(place + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }

  TRIREME_AVX2 static void fill_eight(uint16_t* to, uint64_t call, const DropSpan& span) {
    Words a = counters(call, span.sample);
    Words b = counters(call + 4, span.sample);
    auto key0 = static_cast<uint32_t>(span.key);
    auto key1 = static_cast<uint32_t>(span.key >> 32);
    for (int i = 0; i < 10; ++i) {
      const __m256i k0 = _mm256_set1_epi64x(key0);
      const __m256i k1 = _mm256_set1_epi64x(key1);
      round(a, k0, k1);
      round(b, k0, k1);
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    store(to, a);
    store(to + 4 * kNumbersACall, b);
  }

  TRIREME_AVX2 static void fill(uint16_t* to, int64_t num_calls, uint64_t call,
                                const DropSpan& span) {
    for (int64_t i = 0; i < num_calls; i += kCallsAtOnce) {
      fill_eight(to + i * kNumbersACall, call + static_cast<uint64_t>(i), span);
    }
  }

  template <typename Number>
  TRIREME_AVX2 static void apply(const Number* in, Number* out, int64_t count,
                                 const uint16_t* numbers, uint32_t threshold, Number scale) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = numbers[i] >= threshold ? in[i] * scale : Number(0);
  }
};
#endif

// use(place in the span, count, numbers) for blocks of the span.
template <typename Loops, typename Use>
void for_each_block(int64_t count, const DropSpan& span, const Use& use) {
  std::array<uint16_t, kBlock> numbers;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  for (int64_t i = 0; i < count;) {
    const int64_t offset = (span.first + i) % kNumbersACall;
    const int64_t taken = std::min(kBlock - offset, count - i);
    const int64_t num_calls = (offset + taken + kNumbersACall - 1) / kNumbersACall;
    Loops::fill(numbers.data(), num_calls, static_cast<uint64_t>((span.first + i) / kNumbersACall),
                span);
    use(i, taken, numbers.data() + offset);
    i += taken;
  }
}

template <typename Loops, typename Number>
void drop_by(const Number* in, Number* out, int64_t count, const DropSpan& span, Number scale) {
  for_each_block<Loops>(count, span, [&](int64_t at, int64_t taken, const uint16_t* numbers) {
    Loops::apply(in + at, out + at, taken, numbers, span.threshold, scale);
  });
}

template <typename Loops>
void keep_by(uint8_t* out, int64_t count, const DropSpan& span) {
  for_each_block<Loops>(count, span, [&](int64_t at, int64_t taken, const uint16_t* numbers) {
    for (int64_t i = 0; i < taken; ++i) out[at + i] = numbers[i] >= span.threshold ? 1 : 0;
  });
}

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

#if !defined(__x86_64__)
using Avx2 = Plain;
#endif

}  // namespace

void drop(const float* in, float* out, int64_t count, const DropSpan& span, float scale) {
  (has_avx2() ? drop_by<Avx2, float> : drop_by<Plain, float>)(in, out, count, span, scale);
}

void drop(const double* in, double* out, int64_t count, const DropSpan& span, double scale) {
  (has_avx2() ? drop_by<Avx2, double> : drop_by<Plain, double>)(in, out, count, span, scale);
}

void keep(uint8_t* out, int64_t count, const DropSpan& span) {
  (has_avx2() ? keep_by<Avx2> : keep_by<Plain>)(out, count, span);
}

void drop_without_avx2(const float* in, float* out, int64_t count, const DropSpan& span,
                       float scale) {
  drop_by<Plain>(in, out, count, span, scale);
}

}  // namespace trireme
