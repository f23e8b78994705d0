#include "trireme/schedule/pass_costs_text.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(PassCostsText, NamesEachCost) {
  EXPECT_EQ(parse_pass_costs("F=3,B=9,I=4,W=5,R=2,delay=7").value(),
            (PassCosts{.forward = 3,
                       .backward = 9,
                       .input_gradient = 4,
                       .weight_gradient = 5,
                       .recompute = 2,
                       .delay = 7}));
  EXPECT_EQ(parse_pass_costs("delay=1").value(), (PassCosts{.delay = 1}));
  EXPECT_EQ(parse_pass_costs("W=5,I=4").value(),
            (PassCosts{.backward = 9, .input_gradient = 4, .weight_gradient = 5}));
}

TEST(PassCostsText, RefusesWhatItCannotRead) {
  const std::string expected =
      " is no cost: give F, B, I, W, R or delay, \"=\" and a whole number up to 1099511627776";
  for (const std::string_view item : {"", "F", "F=", "F=-1", "F=1.5", "X=1", "=1",
                                      "F=1099511627777", "F=99999999999999999999", "F= 1"}) {
    const Result<PassCosts> costs = parse_pass_costs(item);
    ASSERT_FALSE(costs.ok()) << item;
    EXPECT_EQ(costs.error().message, "\"" + std::string(item) + "\"" + expected);
  }
  EXPECT_EQ(parse_pass_costs("F=1,").error().message, "\"\"" + expected);
  EXPECT_EQ(parse_pass_costs("F=1,F=2").error().message, "F is given twice");
}

}  // namespace
}  // namespace trireme
