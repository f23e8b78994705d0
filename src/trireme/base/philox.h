// Philox4x32-10 (Salmon et al., SC 2011, "Parallel random numbers: as easy as 1, 2, 3"): a
// counter-based generator. The same key and counter give the same four words everywhere, so what
// is random does not depend on who draws it or in which order.
#pragma once

#include <array>
#include <cstdint>

namespace trireme {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

[[nodiscard]] constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A 64-bit mix of several numbers, used to derive keys: the finalizer of SplitMix64 chained.
[[nodiscard]] constexpr uint64_t mix_bits(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// A keyed permutation of 0 .. size-1, computed and never stored: a four-round Feistel network
// over the smallest even number of bits that holds `size`, walked until it lands inside the range
// (Black and Rogaway, CT-RSA 2002, "Ciphers with arbitrary finite domains").
class KeyedPermutation {
 public:
  // REQUIRES: size > 0.
  KeyedPermutation(uint64_t size, uint64_t key);

  // REQUIRES: index < size. A bijection on 0 .. size-1.
  [[nodiscard]] uint64_t operator()(uint64_t index) const;

 private:
  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace trireme
