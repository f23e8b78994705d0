#include "trireme/cli/learning_rate.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(LearningRate, WarmsUpAndThenFollowsItsFormula) {
  LearningRate schedule = {.peak = 1, .warmup_steps = 2, .num_steps = 5};
  const auto rates = [&](LearningRateKind kind) {
    schedule.kind = kind;
    std::vector<double> result;
    for (int64_t step = 1; step <= 5; ++step) result.push_back(learning_rate(schedule, step));
    return result;
  };
  EXPECT_EQ(rates(LearningRateKind::kConstant), (std::vector<double>{0.5, 1, 1, 1, 1}));
  // u = 1/4, 2/4, 3/4.
  EXPECT_EQ(rates(LearningRateKind::kLinear), (std::vector<double>{0.5, 1, 0.75, 0.5, 0.25}));
  const std::vector<double> cosine = rates(LearningRateKind::kCosine);
  EXPECT_DOUBLE_EQ(cosine[2], 0.85355339059327373);
  EXPECT_NEAR(cosine[3], 0.5, 1e-15);
}

}  // namespace
}  // namespace trireme
