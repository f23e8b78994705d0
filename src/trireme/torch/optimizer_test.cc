#include "trireme/torch/optimizer.h"

#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace trireme {
namespace {

constexpr int64_t kSize = 37;  // no multiple of a vector's width
constexpr int kSteps = 6;
constexpr std::array kDecays = {0.1, 0.0};

using Numbers = std::vector<double>;

Numbers numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
}

// Parameter g of two groups, and its gradient of step `step`.
at::Tensor initial(int64_t g) { return at::arange(kSize, at::kDouble).mul(0.3).add(g).sin(); }
at::Tensor gradient(int64_t g, int64_t step) {
  return at::arange(kSize, at::kDouble).mul(0.7).add(g + 10 * step).cos();
}
double rate(int64_t step) { return 0.1 / (1 + static_cast<double>(step)); }

// What `update` makes of parameter `g`, one number after the other.
template <typename Update>
Numbers by_hand(int64_t g, Update update) {
  Numbers parameter = numbers_of(initial(g));
  for (double& p : parameter) {
    const auto i = static_cast<size_t>(&p - parameter.data());
    double first = 0;
    double second = 0;
    for (int step = 1; step <= kSteps; ++step) {
      const double gradient_now = numbers_of(gradient(g, step))[i];
      update(p, gradient_now, first, second, step, kDecays[static_cast<size_t>(g)]);
    }
  }
  return parameter;
}

template <typename Update>
void expect_equal_to(const OptimizerOptions& options, Update update) {
  std::vector<OptimizerGroup> groups;
  for (int64_t g = 0; g < 2; ++g) {
    groups.push_back({.parameters = {initial(g)}, .weight_decay = kDecays[static_cast<size_t>(g)]});
  }
  groups.push_back({.parameters = {}, .weight_decay = 0});
  auto optimizer = make_optimizer(options, groups);
  ASSERT_TRUE(optimizer.ok());
  for (int64_t step = 1; step <= kSteps; ++step) {
    optimizer.value()->step({{{groups[0].parameters[0], gradient(0, step)}},
                             {{groups[1].parameters[0], gradient(1, step)}},
                             {}},
                            rate(step));
  }
  for (int64_t g = 0; g < 2; ++g) {
    const Numbers expected = by_hand(g, update);
    const Numbers found = numbers_of(groups[static_cast<size_t>(g)].parameters[0]);
    for (size_t i = 0; i < expected.size(); ++i) {
      // A handful of roundings a step, each 1e-16 of a number of size 1.
      EXPECT_NEAR(found[i], expected[i], 1e-13) << options.name << " group " << g;
    }
  }
}

TEST(Optimizer, SgdIsTheFormula) {
  for (const double momentum : {0.0, 0.9}) {
    for (const bool is_nesterov : {false, true}) {
      if (is_nesterov && momentum == 0) continue;
      expect_equal_to({.name = "sgd", .momentum = momentum, .is_nesterov = is_nesterov},
                      [=](double& p, double g, double& velocity, double&, int step, double decay) {
                        g += decay * p;
                        // Dampening is 0, so the first step's velocity is the gradient.
                        velocity = momentum * velocity + g;
                        const double change = is_nesterov ? g + momentum * velocity : velocity;
                        p -= rate(step) * change;
                      });
    }
  }
}

TEST(Optimizer, PlainSgdOfRowsHasTheBitsOfTheWholeTable) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t width : {1, 3, 8, 13, 64}) {
      const at::Tensor whole = at::arange(100 * width).sin().reshape({100, width}).to(dtype);
      const at::Tensor of_rows = whole.clone();
      const at::Tensor rows = at::arange(7).mul(13);
      const at::Tensor gradient = at::arange(7 * width).cos().reshape({7, width}).to(dtype);
      const at::Tensor dense = at::zeros_like(whole).index_copy_(0, rows, gradient);
      for (const auto& [parameter, each, of] :
           {std::tuple(whole, dense, at::Tensor()), std::tuple(of_rows, gradient, rows)}) {
        const auto optimizer = make_optimizer({.name = "sgd"}, {{.parameters = {parameter}}});
        ASSERT_TRUE(optimizer.value()->takes_rows(0));
        optimizer.value()->step({{{parameter, each, of}}}, 0.037);
      }
      EXPECT_TRUE(whole.equal(of_rows)) << dtype << " of width " << width;
    }
  }
}

TEST(Optimizer, WhatMovesEveryWeightTakesNoRows) {
  const auto takes_rows = [](const OptimizerOptions& options, double decay) {
    return make_optimizer(options, {{.parameters = {at::zeros({3, 2})}, .weight_decay = decay}})
        .value()
        ->takes_rows(0);
  };
  EXPECT_FALSE(takes_rows({.name = "sgd"}, 0.1));
  EXPECT_FALSE(takes_rows({.name = "sgd", .momentum = 0.9}, 0));
  EXPECT_FALSE(takes_rows({.name = "adamw"}, 0));
  EXPECT_TRUE(takes_rows({.name = "adamw", .puts_off_rows = true}, 0.1));
  EXPECT_FALSE(takes_rows({.name = "adamw", .eps = 0, .puts_off_rows = true}, 0));
  const at::Tensor of_16_bits = at::zeros({3, 2}, at::kBFloat16);
  EXPECT_FALSE(
      make_optimizer({.name = "sgd"}, {{.parameters = {of_16_bits}}}).value()->takes_rows(0));
}

TEST(Optimizer, AdamWIsTheFormula) {
  constexpr double kBeta1 = 0.8;
  constexpr double kBeta2 = 0.95;
  constexpr double kEps = 1e-4;
  expect_equal_to({.name = "adamw", .beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps},
                  [](double& p, double g, double& mean, double& square, int step, double decay) {
                    p -= rate(step) * decay * p;
                    mean = kBeta1 * mean + (1 - kBeta1) * g;
                    square = kBeta2 * square + (1 - kBeta2) * g * g;
                    const double unbiased_mean = mean / (1 - std::pow(kBeta1, step));
                    const double unbiased_square = square / (1 - std::pow(kBeta2, step));
                    p -= rate(step) * unbiased_mean / (std::sqrt(unbiased_square) + kEps);
                  });
}

TEST(Optimizer, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto optimizer = make_optimizer({.name = "adagrad"}, {});
  ASSERT_FALSE(optimizer.ok());
  EXPECT_EQ(optimizer.error().message,
            "there is no optimizer 'adagrad'; known are sgd, adamw, "
            "lazy-adamw");
}

}  // namespace
}  // namespace trireme
