#include "trireme/torch/final_gradients.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr size_t kNumInputs = 6;
// Input 0 belongs to the user, 5 gets no gradient.
const std::vector<GradientBucket> kBuckets = {{.inputs = {3, 2}}, {.inputs = {1, 4}}};

struct Heard {
  std::vector<int32_t> buckets;
  FinalGradients final_gradients{kBuckets, kNumInputs,
                                 [this](int32_t bucket) { buckets.push_back(bucket); }};
};

TEST(FinalGradients, ABucketIsFinalWhenEachOfItsSumsHasAllThatWasCounted) {
  Heard heard;
  const std::vector<int32_t> inputs = {1, 2, 3, 4, 5};
  heard.final_gradients.expect(inputs, 1);
  GradientShare share(heard.final_gradients, inputs, kNumInputs);
  share.will_add(3, Adds::kItself);
  share.will_add(3, Adds::kItself);
  share.will_add(2, Adds::kByAutograd);
  share.will_add(2, Adds::kByAutograd);  // a second use: autograd adds both at once
  share.will_add(2, Adds::kItself);
  share.will_add(5, Adds::kByAutograd);
  share.added(5);
  share.added(3);
  share.added(2);
  share.added(3);
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{}));
  share.added(2);
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{0}));
  share.close();
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{0, 1}));
}

TEST(FinalGradients, WhatNothingCountedIsFinalAfterThePass) {
  Heard heard;
  const std::vector<int32_t> inputs = {2, 3};
  heard.final_gradients.expect(inputs, 1);
  GradientShare share(heard.final_gradients, inputs, kNumInputs);
  share.will_add(2, Adds::kItself);
  share.added(2);
  share.added(3);  // nobody said that it comes, so more may come
  share.added(3);
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{}));
  share.close();
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{0}));
}

// As where the loss of a batch does not depend on a parameter.
TEST(FinalGradients, WhatWasCountedAndNeverComesIsFinalAfterThePass) {
  Heard heard;
  const std::vector<int32_t> inputs = {2, 3};
  heard.final_gradients.expect(inputs, 1);
  GradientShare share(heard.final_gradients, inputs, kNumInputs);
  share.will_add(2, Adds::kItself);
  share.will_add(2, Adds::kByAutograd);
  share.will_add(3, Adds::kByAutograd);
  share.added(2);
  share.added(3);
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{}));
  share.close();
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{0}));
}

// Two chunks share input 2, in two micro-batches.
TEST(FinalGradients, EveryChunkAndMicroBatchHasAShare) {
  Heard heard;
  const std::vector<int32_t> first = {2, 3};
  const std::vector<int32_t> second = {2};
  heard.final_gradients.expect(first, 2);
  heard.final_gradients.expect(second, 2);
  for (int32_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
    GradientShare of_second(heard.final_gradients, second, kNumInputs);
    of_second.will_add(2, Adds::kItself);
    of_second.added(2);
    of_second.close();
    GradientShare of_first(heard.final_gradients, first, kNumInputs);
    of_first.will_add(2, Adds::kItself);
    of_first.added(2);
    EXPECT_EQ(heard.buckets, (std::vector<int32_t>{}));
    of_first.close();
  }
  EXPECT_EQ(heard.buckets, (std::vector<int32_t>{0}));
}

TEST(FinalGradients, TheShareOfAThreadIsThatOfItsInnermostScope) {
  Heard heard;
  GradientShare share(heard.final_gradients, {}, kNumInputs);
  EXPECT_EQ(GradientShare::current(), nullptr);
  {
    const GradientShare::Scope outer(&share);
    EXPECT_EQ(GradientShare::current(), &share);
    const GradientShare::Scope inner(nullptr);
    EXPECT_EQ(GradientShare::current(), nullptr);
  }
  EXPECT_EQ(GradientShare::current(), nullptr);
}

TEST(FinalGradientsDeathTest, AGradientAfterTheLastThatWasCountedEndsTheProgram) {
  Heard heard;
  const std::vector<int32_t> inputs = {2};
  heard.final_gradients.expect(inputs, 1);
  GradientShare share(heard.final_gradients, inputs, kNumInputs);
  share.will_add(2, Adds::kItself);
  share.added(2);
  EXPECT_DEATH(share.added(2), "a gradient came after the last that was counted");
}

}  // namespace
}  // namespace trireme
