#include "trireme/schedule/pass_costs_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

struct Name {
  std::string_view text;
  int64_t PassCosts::* cost;
};

constexpr std::array<Name, 6> kNames = {{{"F", &PassCosts::forward},
                                         {"B", &PassCosts::backward},
                                         {"I", &PassCosts::input_gradient},
                                         {"W", &PassCosts::weight_gradient},
                                         {"R", &PassCosts::recompute},
                                         {"delay", &PassCosts::delay}}};

Error wrong_item(std::string_view item) {
  return Error{
      fmt::format("{} is no cost: give F, B, I, W, R or delay, \"=\" and a whole number "
                  "up to {}",
                  in_quotes(item), kMaxPassCost)};
}

}  // namespace

Result<PassCosts> parse_pass_costs(std::string_view text) {
  PassCosts costs;
  std::vector<const Name*> seen;
  while (true) {
    const std::string_view item = text.substr(0, text.find(','));
    const size_t equals = std::min(item.find('='), item.size());
    const auto name = std::ranges::find(kNames, item.substr(0, equals), &Name::text);
    if (name == kNames.end() || equals == item.size()) return wrong_item(item);
    const std::string_view digits = item.substr(equals + 1);
    int64_t cost = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), cost);
    if (error != std::errc() || end != digits.data() + digits.size() || cost < 0 ||
        cost > kMaxPassCost) {
      return wrong_item(item);
    }
    if (std::ranges::find(seen, &*name) != seen.end()) {
      return Error{fmt::format("{} is given twice", name->text)};
    }
    seen.push_back(&*name);
    costs.*(name->cost) = cost;
    if (item.size() == text.size()) break;
    text.remove_prefix(item.size() + 1);
  }
  if (std::ranges::none_of(seen, [](const Name* n) { return n->cost == &PassCosts::backward; })) {
    costs.backward = std::min(costs.input_gradient + costs.weight_gradient, kMaxPassCost);
  }
  return costs;
}

}  // namespace trireme
