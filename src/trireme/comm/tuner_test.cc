#include "trireme/comm/tuner.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

double log_ratio(int64_t a, double b) { return std::log(static_cast<double>(a) / b); }

TEST(Tuner, ComesCloserToTheBestThanItsRandomPoints) {
  SimTime beyond_at_random = 0;
  SimTime beyond = 0;
  for (const double partition : {10e6, 30e6, 100e6}) {
    for (const double credit : {20e6, 60e6, 200e6}) {
      // A valley, how far a point is above its ground.
      const auto step_of = [&](const PolicyOptions& options) {
        const double x = log_ratio(options.chunk_bytes, partition);
        const double y = log_ratio(options.credit_bytes, credit);
        return static_cast<SimTime>(1e6 * (x * x + y * y));
      };
      std::vector<SimTime> steps;
      const Tuned tuned = tune({}, [&](const PolicyOptions& options) {
        steps.push_back(step_of(options));
        EXPECT_GE(options.chunk_bytes, 8'000'000);
        EXPECT_LE(options.chunk_bytes, 128'000'000);
        EXPECT_GE(options.credit_bytes, 16'000'000);
        EXPECT_LE(options.credit_bytes, 256'000'000);
        return steps.back();
      });
      ASSERT_EQ(steps.size(), 15U);
      EXPECT_EQ(tuned.num_tried, 15);
      EXPECT_EQ(tuned.step, *std::min_element(steps.begin(), steps.end()));
      EXPECT_EQ(step_of(tuned.options), tuned.step);
      beyond_at_random += *std::min_element(steps.begin(), steps.begin() + 10);
      beyond += tuned.step;
    }
  }
  EXPECT_LT(beyond, beyond_at_random / 4);
}

TEST(Tuner, TakesAConstantForWhatItIs) {
  const Tuned tuned = tune({}, [](const PolicyOptions&) { return SimTime{7}; });
  EXPECT_EQ(tuned.step, 7);
}

TEST(Tuner, TriesTheSamePointsEachTime) {
  std::vector<PolicyOptions> tried[2];
  for (std::vector<PolicyOptions>& points : tried) {
    (void)tune({}, [&](const PolicyOptions& options) {
      points.push_back(options);
      return options.chunk_bytes + options.credit_bytes;
    });
  }
  EXPECT_EQ(tried[0], tried[1]);
}

}  // namespace
}  // namespace trireme
