#include "trireme/base/philox.h"

#include "trireme/base/check.h"

namespace trireme {

KeyedPermutation::KeyedPermutation(uint64_t size, uint64_t key)
    : size_(size), key_(key), half_bits_(1) {
  TRIREME_CHECK(size > 0, "a permutation of nothing");
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

uint64_t KeyedPermutation::operator()(uint64_t index) const {
  TRIREME_CHECK(index < size_, "the index is outside the permutation");
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_;
    uint64_t right = index & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const PhiloxCounter mixed = philox(
          {static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0x7065726D},
          {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
      const uint64_t next = left ^ (mixed[0] & mask);
      left = right;
      right = next;
    }
    index = (left << half_bits_) | right;
  } while (index >= size_);
  return index;
}

}  // namespace trireme
