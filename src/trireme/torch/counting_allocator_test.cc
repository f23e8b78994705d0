#include "trireme/torch/counting_allocator.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace trireme {
namespace {

TEST(CountingAllocator, KnowsWhatTensorsHoldAndTheMostTheyHeld) {
  count_tensor_memory();
  const int64_t before = tensor_memory_now().bytes;
  reset_tensor_memory_peak();
  constexpr int64_t kBytes = 4'000'000;
  constexpr int64_t kSlack = 10'000;  // of pages
  const auto is_about = [](int64_t bytes, int64_t expected) {
    return bytes >= expected && bytes <= expected + kSlack;
  };
  {
    const at::Tensor first = at::empty({kBytes / 4});
    EXPECT_TRUE(is_about(tensor_memory_now().bytes - before, kBytes));
    {
      const at::Tensor second = first.clone();
    }
    EXPECT_TRUE(is_about(tensor_memory_now().bytes - before, kBytes));
    EXPECT_TRUE(is_about(tensor_memory_now().peak_bytes - before, 2 * kBytes));
    const at::Tensor view = first.view({-1, 2});
    EXPECT_TRUE(is_about(tensor_memory_now().bytes - before, kBytes));
  }
  EXPECT_EQ(tensor_memory_now().bytes, before);
  reset_tensor_memory_peak();
  EXPECT_EQ(tensor_memory_now().peak_bytes, before);
}

}  // namespace
}  // namespace trireme
