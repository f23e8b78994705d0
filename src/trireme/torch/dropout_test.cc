#include "trireme/torch/dropout.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/torch/dropout_kernel.h"

namespace trireme {
namespace {

constexpr DrawStream kKey = {.key = 0x123456789abcdef0, .first_sample = 5, .batch_dim = 0};

at::Tensor kept(const at::Tensor& x, double p, const DrawStream& key) {
  return counter_dropout(x, p, key) != 0;
}

TEST(Dropout, DoesNotDependOnHowABatchIsSplit) {
  struct Row {
    std::vector<int64_t> sizes;
    int64_t batch_dim;
    int64_t rows_per_sample;
  };
  for (const Row& row : {Row{{8, 5, 7}, 0, 1}, Row{{4, 8, 6}, 1, 1}, Row{{16, 3}, 0, 2},
                         Row{{8}, 0, 1}, Row{{2, 3, 24, 5}, 2, 3}}) {
    const at::Tensor x = at::ones(row.sizes);
    DrawStream key = kKey;
    key.batch_dim = row.batch_dim;
    key.rows_per_sample = row.rows_per_sample;
    const at::Tensor whole = counter_dropout(x, 0.4, key);
    std::vector<at::Tensor> parts;
    int64_t sample = 0;
    for (const int64_t count : {3, 1, 4}) {
      DrawStream part = key;
      part.first_sample += sample;
      parts.push_back(counter_dropout(
          x.narrow(row.batch_dim, sample * row.rows_per_sample, count * row.rows_per_sample), 0.4,
          part));
      sample += count;
    }
    EXPECT_TRUE(at::equal(at::cat(parts, row.batch_dim), whole)) << row.batch_dim;
  }
}

TEST(Dropout, FindsTheSamplesBehindTheBlocksOfAMergedDim) {
  const at::Tensor x = at::ones({3, 8, 5});
  DrawStream stream = kKey;
  stream.batch_dim = 1;
  const at::Tensor apart = counter_dropout(x, 0.4, stream);
  stream.batch_dim = 0;
  stream.rows_per_sample = stream.blocks = 3;
  EXPECT_TRUE(at::equal(counter_dropout(x.view({24, 5}), 0.4, stream), apart.view({24, 5})));
}

TEST(Dropout, DiffersByKeyAndBySample) {
  const at::Tensor x = at::ones({2, 1000});
  const at::Tensor mask = kept(x, 0.5, kKey);
  EXPECT_TRUE(at::equal(mask, kept(x, 0.5, kKey)));
  EXPECT_FALSE(at::equal(mask[0], mask[1]));
  for (const uint64_t bit : {uint64_t{1}, uint64_t{1} << 40}) {
    DrawStream other = kKey;
    other.key ^= bit;
    // Independent masks of p = 1/2 agree in half of the places; sigma is sqrt(2000) / 2 = 22.
    const auto agreeing = (mask == kept(x, 0.5, other)).sum().item<int64_t>();
    EXPECT_NEAR(static_cast<double>(agreeing), 1000.0, 5 * 22.4) << bit;
  }
}

TEST(Dropout, KeepsTheRightShareWithTheRightScale) {
  constexpr int64_t kCount = 400'000;
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = counter_dropout(at::ones({4, kCount / 4}), p, kKey);
    const double share = (y != 0).sum().item<double>() / kCount;
    EXPECT_NEAR(share, 1 - p, 5 * std::sqrt(p * (1 - p) / kCount));
    // p is rounded to 2^-16, the scale is that of the rounded p.
    const double rounded = std::round(p * 65536) / 65536;
    EXPECT_EQ(y.max().item<float>(), static_cast<float>(1 / (1 - rounded)));
  }
}

TEST(Dropout, HasTheSameMaskInEveryPrecisionAndInTheBackwardPass) {
  const at::Tensor mask = kept(at::ones({6, 50}), 0.3, kKey);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::ones({6, 50}, type).requires_grad_();
    const at::Tensor y = counter_dropout(x, 0.3, kKey);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(at::equal(y.detach() != 0, mask)) << toString(type);
    y.backward(at::ones_like(y));
    EXPECT_TRUE(at::equal(x.grad(), y.detach())) << toString(type);
  }
}

TEST(Dropout, TakesTensorsThatAreNotContiguous) {
  const at::Tensor x = at::arange(1, 61, at::kFloat).view({6, 10});
  const at::Tensor turned = x.t().contiguous().t();
  ASSERT_FALSE(turned.is_contiguous());
  EXPECT_TRUE(at::equal(counter_dropout(turned, 0.5, kKey), counter_dropout(x, 0.5, kKey)));
  EXPECT_EQ(counter_dropout(at::ones({0, 4}), 0.5, kKey).sizes(), (std::vector<int64_t>{0, 4}));
}

TEST(Dropout, KeepsAllOrNothingAtTheEnds) {
  const at::Tensor x = at::full({3, 8}, 2.5, at::kDouble).requires_grad_();
  const at::Tensor all = counter_dropout(x, 0, kKey);
  EXPECT_TRUE(at::equal(all, x));
  // Zero, not 0 * infinity.
  const at::Tensor infinite =
      at::full({3, 8}, std::numeric_limits<double>::infinity(), at::kDouble).requires_grad_();
  const at::Tensor none = counter_dropout(infinite, 1, kKey);
  EXPECT_TRUE(at::equal(none.detach(), at::zeros({3, 8}, at::kDouble)));
  none.backward(at::ones_like(none));
  EXPECT_TRUE(at::equal(infinite.grad(), at::zeros({3, 8}, at::kDouble)));
}

TEST(Dropout, IsTheSameWithAndWithoutVectorInstructions) {
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 64}, {0, 5000}, {3, 1}, {7, 4099}, {(int64_t{1} << 35) - 9, 100}}) {
    const DropSpan span = {.key = 0x123456789abcdef0,
                           .sample = (uint64_t{5} << 32) + 17,
                           .first = first,
                           .threshold = 20000};
    const std::vector<float> in(static_cast<size_t>(count), 1.0F);
    std::vector<float> fast(in.size());
    std::vector<float> plain(in.size());
    std::vector<uint8_t> kept(in.size());
    std::vector<double> doubles(in.size());
    drop(in.data(), fast.data(), count, span, 2);
    drop_without_avx2(in.data(), plain.data(), count, span, 2);
    drop(std::vector<double>(in.size(), 1.0).data(), doubles.data(), count, span, 2);
    keep(kept.data(), count, span);
    EXPECT_EQ(fast, plain) << first;
    for (size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(plain[i], 2.0F * kept[i]);
      ASSERT_EQ(doubles[i], 2.0 * kept[i]);
    }
  }
}

TEST(Dropout, DoesNotDependOnTheNumberOfThreads) {
  const at::Tensor x = at::ones({7, 30011});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = counter_dropout(x, 0.4, kKey);
  at::set_num_threads(3);
  const at::Tensor three = counter_dropout(x, 0.4, kKey);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, three));
}

TEST(Dropout, WithoutABatchDimEverySampleIsTheSame) {
  const at::Tensor x = at::ones({100});
  const DrawStream first = {.key = 7, .first_sample = 0, .batch_dim = -1};
  const DrawStream later = {.key = 7, .first_sample = 3, .batch_dim = -1};
  EXPECT_TRUE(at::equal(counter_dropout(x, 0.5, first), counter_dropout(x, 0.5, later)));
}

}  // namespace
}  // namespace trireme
