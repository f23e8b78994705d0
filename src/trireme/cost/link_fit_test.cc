#include "trireme/cost/link_fit.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Of a link with 50 us and 100 MB/s; `noise` is what every second message takes more.
std::vector<TimedSize> timed(double noise) {
  std::vector<TimedSize> sizes;
  for (const double bytes : {8.0, 4096.0, 65536.0, 1e6}) {
    TimedSize size{.bytes = bytes};
    for (int i = 0; i < 21; ++i) {
      size.seconds.push_back((50e-6 + bytes / 100e6) * (1 + (i % 2 == 0 ? 0 : noise)));
    }
    sizes.push_back(std::move(size));
  }
  return sizes;
}

TEST(LinkFit, FindsTheNumbersThatTimesWereMadeOf) {
  const std::optional<LinkFit> fit = fit_link(timed(0));
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->latency_s.value, 50e-6, 1e-7);  // of eight bytes
  EXPECT_NEAR(fit->bytes_per_s.value, 100e6, 1);
  EXPECT_NEAR(fit->latency_s.low, fit->latency_s.high, 1e-12);
}

TEST(LinkFit, NoisyTimesHaveWiderIntervals) {
  const std::optional<LinkFit> fit = fit_link(timed(0.1));
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->latency_s.value, 50e-6, 1e-7);  // the median is of those without noise
  EXPECT_GT(fit->latency_s.high, 51e-6);
  EXPECT_LT(fit->bytes_per_s.low, 99e6);
  EXPECT_LE(fit->latency_s.low, fit->latency_s.value);
  EXPECT_EQ(fit_link(timed(0.1)), fit) << "the same numbers are drawn each time";
}

TEST(LinkFit, NeedsTwoSizesOfWhichTheLongerTakesLonger) {
  EXPECT_FALSE(fit_link({}).has_value());
  EXPECT_FALSE(fit_link(std::vector<TimedSize>{{8, {1e-6, 2e-6}}}).has_value());
  EXPECT_FALSE(fit_link(std::vector<TimedSize>{{8, {2e-6}}, {1e6, {1e-6}}}).has_value());
}

TEST(LinkFit, WhatBuffersSwallowDoesNotBendTheLine) {
  std::vector<TimedSize> sizes = timed(0);
  sizes[1].seconds.assign(21, 50e-6);  // of 4096 bytes: no time on the link at all
  EXPECT_EQ(fit_link(sizes), fit_link(timed(0)));
}

TEST(LinkFit, TheMedianLiesInItsInterval) {
  const Estimate estimate = estimate_median(std::vector<double>{5, 1, 4, 2, 3});
  EXPECT_EQ(estimate.value, 3);
  EXPECT_LT(estimate.low, 3);
  EXPECT_GT(estimate.high, 3);
}

}  // namespace
}  // namespace trireme
