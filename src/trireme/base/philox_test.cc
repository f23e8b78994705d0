#include "trireme/base/philox.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, MatchesThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(KeyedPermutation, IsABijectionOfEverySmallSize) {
  for (uint64_t size = 1; size < 200; ++size) {
    const KeyedPermutation permutation(size, 42);
    std::vector<bool> seen(size, false);
    for (uint64_t index = 0; index < size; ++index) {
      const uint64_t image = permutation(index);
      ASSERT_LT(image, size);
      EXPECT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
}

TEST(KeyedPermutation, DependsOnItsKey) {
  const KeyedPermutation first(1000, 1);
  const KeyedPermutation second(1000, 2);
  int equal = 0;
  for (uint64_t index = 0; index < 1000; ++index) equal += first(index) == second(index) ? 1 : 0;
  EXPECT_LT(equal, 20);
}

}  // namespace
}  // namespace trireme
