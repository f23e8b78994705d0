#include "trireme/data/batches.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/base/philox.h"

namespace trireme {
namespace {

using Samples = std::vector<uint64_t>;

Batches make(const BatchOptions& options) { return Batches::make(options).value(); }

TEST(Batches, TakeSequentialSamplesAndEndAnEpochWithAShorterBatch) {
  const Batches batches = make({.num_samples = 7, .batch = 3, .order = SampleOrder::kSequential});
  EXPECT_EQ(batches.batches_per_epoch(), 3);
  EXPECT_EQ(batches.samples(0), (Samples{0, 1, 2}));
  EXPECT_EQ(batches.samples(1), (Samples{3, 4, 5}));
  EXPECT_EQ(batches.samples(2), (Samples{6}));
  EXPECT_EQ(batches.samples(3), (Samples{0, 1, 2}));
}

TEST(Batches, LeaveTheShorterBatchOutWhenAskedTo) {
  const Batches batches = make({.num_samples = 7,
                                .batch = 3,
                                .order = SampleOrder::kSequential,
                                .last_batch = LastBatch::kDropped});
  EXPECT_EQ(batches.batches_per_epoch(), 2);
  EXPECT_EQ(batches.samples(1), (Samples{3, 4, 5}));
  EXPECT_EQ(batches.samples(2), (Samples{0, 1, 2}));
}

TEST(Batches, TakeAllSamplesWhenTheBatchIsLargerThanTheData) {
  const Batches batches = make({.num_samples = 2, .batch = 5, .order = SampleOrder::kSequential});
  EXPECT_EQ(batches.batches_per_epoch(), 1);
  EXPECT_EQ(batches.samples(0), (Samples{0, 1}));
  EXPECT_EQ(batches.samples(1), (Samples{0, 1}));
}

TEST(Batches, ShuffleByThePermutationOfSeedAndEpoch) {
  const Batches batches = make({.num_samples = 11, .batch = 4, .seed = 5});
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const KeyedPermutation permutation(11, mix_bits(5, epoch));
    for (int64_t batch = 0; batch < 3; ++batch) {
      const Samples samples = batches.samples(static_cast<int64_t>(epoch) * 3 + batch);
      ASSERT_EQ(samples.size(), batch == 2 ? 3u : 4u);
      for (size_t i = 0; i < samples.size(); ++i) {
        EXPECT_EQ(samples[i], permutation(static_cast<uint64_t>(batch) * 4 + i));
      }
    }
  }
}

TEST(Batches, HoldEverySampleOnceAnEpochInAnotherOrderEachEpochAndSeed) {
  for (const int64_t num_samples : {1, 2, 3, 16, 17, 1000}) {
    std::vector<Samples> orders;
    for (const uint64_t seed : {0, 1}) {
      const Batches batches = make({.num_samples = num_samples, .batch = 7, .seed = seed});
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        Samples order;
        for (int64_t b = 0; b < batches.batches_per_epoch(); ++b) {
          const Samples samples = batches.samples(epoch * batches.batches_per_epoch() + b);
          order.insert(order.end(), samples.begin(), samples.end());
        }
        orders.push_back(order);
        std::sort(order.begin(), order.end());
        Samples all(static_cast<size_t>(num_samples));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(order, all) << num_samples << " samples, seed " << seed << ", epoch " << epoch;
      }
    }
    if (num_samples < 16) continue;  // few samples have few orders
    std::sort(orders.begin(), orders.end());
    EXPECT_EQ(std::adjacent_find(orders.begin(), orders.end()), orders.end()) << num_samples;
  }
}

TEST(Batches, CountFarStepsWithoutOverflow) {
  const int64_t many = int64_t{1} << 60;
  const Batches batches =
      make({.num_samples = many, .batch = 2, .order = SampleOrder::kSequential});
  EXPECT_EQ(batches.samples((int64_t{1} << 59) - 1),
            (Samples{(uint64_t{1} << 60) - 2, (uint64_t{1} << 60) - 1}));
  const Batches large = make({.num_samples = 3, .batch = INT64_MAX});
  EXPECT_EQ(large.batches_per_epoch(), 1);
  EXPECT_EQ(large.samples(INT64_MAX).size(), 3u);
}

TEST(Batches, RefuseWhatHoldsNoBatch) {
  EXPECT_EQ(Batches::make({.num_samples = 0, .batch = 1}).error().message,
            "the data has no samples");
  EXPECT_EQ(Batches::make({.num_samples = 4, .batch = 0}).error().message,
            "the batch is 0 samples but must be at least 1");
  EXPECT_EQ(Batches::make({.num_samples = 4, .batch = 5, .last_batch = LastBatch::kDropped})
                .error()
                .message,
            "the data has 4 samples, fewer than the batch of 5, and --drop-last leaves no batch; "
            "use a smaller --batch or no --drop-last");
  EXPECT_TRUE(Batches::make({.num_samples = 4, .batch = 5}).ok());
  EXPECT_TRUE(
      Batches::make({.num_samples = 4, .batch = 4, .last_batch = LastBatch::kDropped}).ok());
}

TEST(ShareOut, GivesLargerPartsFirst) {
  EXPECT_EQ(share_out(7, 3), (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(share_out(6, 3), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(share_out(2, 4), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(share_out(0, 2), (std::vector<int64_t>{0, 0}));
}

TEST(ShareStep, SharesEverySampleOnceInOrderOverAGridOfShapes) {
  for (int64_t num_samples = 0; num_samples <= 20; ++num_samples) {
    for (int32_t dp = 1; dp <= 4; ++dp) {
      for (int32_t micro_batches = 1; micro_batches <= 4; ++micro_batches) {
        SCOPED_TRACE(testing::Message() << num_samples << " samples, dp " << dp << ", "
                                        << micro_batches << " micro-batches");
        const StepShares step = share_step(num_samples, dp, micro_batches);
        ASSERT_EQ(step.num_micro_batches.size(), static_cast<size_t>(dp));
        ASSERT_EQ(step.shares.size(), static_cast<size_t>(dp));
        int64_t next = 0;
        std::vector<int64_t> sizes;
        for (int32_t replica = 0; replica < dp; ++replica) {
          const auto& shares = step.shares[static_cast<size_t>(replica)];
          ASSERT_EQ(shares.size(),
                    static_cast<size_t>(step.num_micro_batches[static_cast<size_t>(replica)]));
          ASSERT_LE(shares.size(), static_cast<size_t>(micro_batches));
          for (const StepShares::Share& share : shares) {
            EXPECT_EQ(share.first, next);
            EXPECT_GE(share.size, 1);
            next += share.size;
            sizes.push_back(share.size);
          }
        }
        EXPECT_EQ(next, num_samples);
        EXPECT_EQ(static_cast<int64_t>(sizes.size()),
                  std::min<int64_t>(num_samples, int64_t{dp} * micro_batches));
        EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
        if (!sizes.empty()) {
          EXPECT_LE(sizes.front() - sizes.back(), 1);
        }
      }
    }
  }
}

TEST(ShareStep, UsesFewerMicroBatchesForFewerSamples) {
  const StepShares step = share_step(3, 2, 4);
  EXPECT_EQ(step.num_micro_batches, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(step.shares[1][0].first, 2);
  EXPECT_EQ(share_step(1, 2, 2).num_micro_batches, (std::vector<int32_t>{1, 0}));
}

}  // namespace
}  // namespace trireme
