#include "trireme/torch/row_replay.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "trireme/torch/optimizer.h"

namespace trireme {
namespace {

constexpr int64_t kRows = 40;
constexpr int64_t kWidth = 5;

at::Tensor initial() {
  return at::arange(kRows * kWidth, at::kDouble).mul(0.3).sin().reshape({kRows, kWidth});
}
double rate(int64_t step) { return 0.01 / std::sqrt(1 + static_cast<double>(step)); }

// Row r is touched in every (r + 1)th step.
at::Tensor touched(int64_t step) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < kRows; ++row) {
    if (step % (row + 1) == 0) rows.push_back(row);
  }
  return at::tensor(rows, at::kLong);
}
at::Tensor gradient(int64_t step, int64_t num_rows) {
  return at::arange(num_rows * kWidth, at::kDouble).mul(0.7).add(step).cos().reshape({-1, kWidth});
}

// The largest difference between rows that wait and rows that do not, relative to 1.
double difference(const OptimizerOptions& given, double decay, int64_t num_steps) {
  OptimizerOptions options = given;
  const at::Tensor dense = initial();
  const at::Tensor late = initial();
  const auto of_dense =
      make_optimizer(options, {{.parameters = {dense}, .weight_decay = decay}}).value();
  options.puts_off_rows = true;
  const auto of_late =
      make_optimizer(options, {{.parameters = {late}, .weight_decay = decay}}).value();
  EXPECT_FALSE(of_dense->takes_rows(0));
  EXPECT_TRUE(of_late->takes_rows(0));
  double most = 0;
  for (int64_t step = 1; step <= num_steps; ++step) {
    const at::Tensor rows = touched(step);
    const at::Tensor of_rows = gradient(step, rows.size(0));
    of_dense->step({{{dense, at::zeros_like(dense).index_copy(0, rows, of_rows)}}}, rate(step));
    // What reads rows has them caught up, and now and then all are touched.
    if (step % 7 == 0) of_late->catch_up(0, 0, late, touched(step - 1), Optimizer::Keeps::kAll);
    if (step == 20) {
      const at::Tensor whole = at::zeros_like(late).index_copy(0, rows, of_rows);
      of_late->step({{{late, whole}}}, rate(step));
    } else {
      of_late->step({{{late, of_rows, rows}}}, rate(step));
    }
    const at::Tensor now = late.index_select(0, rows).sub(dense.index_select(0, rows)).abs();
    if (rows.size(0) > 0) most = std::max(most, now.max().item<double>());
  }
  const at::Tensor copy = late.clone();
  const at::Tensor before = late.clone();
  of_late->catch_up(0, 0, copy, {}, Optimizer::Keeps::kNothing);
  EXPECT_TRUE(late.equal(before));
  most = std::max(most, copy.sub(dense).abs().max().item<double>());
  of_late->catch_up(0, 0, late, {}, Optimizer::Keeps::kAll);
  EXPECT_TRUE(late.equal(copy));
  return most;
}

// A step rounds some times, each by 1e-16 of numbers of size 1.
TEST(RowReplay, RowsThatWaitEndWhereTheOthersDo) {
  EXPECT_LT(difference({.name = "adamw", .eps = 1e-6}, 0.1, 100), 1e-13);
  EXPECT_LT(difference({.name = "adamw", .eps = 1e-6}, 0, 100), 1e-13);
  EXPECT_LT(difference({.name = "adamw", .beta1 = 0, .beta2 = 0.5, .eps = 1e-6}, 0.1, 100), 1e-13);
  // The average outlives the squares: no step may be left out.
  EXPECT_LT(difference({.name = "adamw", .beta1 = 0.9, .beta2 = 0.5, .eps = 1e-2}, 0.1, 100),
            1e-12);
}

// 60 steps until 2^-60 of an average is left (0.5 / 1), then 940 at once.
TEST(RowReplay, ALongWaitIsAFewStepsAndAPower) {
  const OptimizerOptions options{.name = "adamw", .beta1 = 0.5, .beta2 = 0.999999, .eps = 1e-8};
  RowReplay replay(options, 0.1);
  for (int64_t step = 1; step <= 1000; ++step) replay.add_step(rate(step));
  std::vector<double> weights = {1.0, -0.5};
  std::vector<double> averages = {0.25, 0};
  std::vector<double> squares = {0.04, 0};
  std::vector<double> by_hand = weights;
  double average = averages[0];
  double square = squares[0];
  for (int64_t step = 11; step <= 1000; ++step) {
    const auto s = static_cast<double>(step);
    average *= 0.5;
    square *= 0.999999;
    for (double& weight : by_hand) weight *= 1 - rate(step) * 0.1;
    by_hand[0] -= rate(step) * average / (1 - std::pow(0.5, s)) /
                  (std::sqrt(square / (1 - std::pow(0.999999, s))) + 1e-8);
  }
  replay.run(RowReplay::Row<double>{weights, averages, squares}, 10, 1000);
  EXPECT_NEAR(weights[0], by_hand[0], 1e-13);
  EXPECT_NEAR(weights[1], by_hand[1], 1e-13);
  EXPECT_NEAR(squares[0], square, 1e-15);
  EXPECT_NEAR(averages[0], average, 1e-15);
}

// Weights that a step turns around have no logarithm.
TEST(RowReplay, ADecayBeyondOneIsTakenStepByStep) {
  RowReplay replay({.name = "adamw"}, 3.0);
  for (int step = 0; step < 3; ++step) replay.add_step(0.5);
  std::vector<double> weights = {8};
  std::vector<double> averages = {0};
  std::vector<double> squares = {0};
  replay.run(RowReplay::Row<double>{weights, averages, squares}, 0, 3);
  EXPECT_DOUBLE_EQ(weights[0], -1);
}

}  // namespace
}  // namespace trireme
