// The costs of passes as a person writes them: F=2,I=2,W=2,delay=1.
//
//   text  = item { "," item }          each name at most once
//   item  = NAME "=" N                 NAME is F, B, I, W, R or delay; N a whole number
//
// What is not named costs what PassCosts says; B, where it is not named, is I and W together.
#pragma once

#include <string_view>

#include "trireme/base/result.h"
#include "trireme/schedule/timetable.h"

namespace trireme {

[[nodiscard]] Result<PassCosts> parse_pass_costs(std::string_view text);

}  // namespace trireme
