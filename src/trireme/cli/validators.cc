#include "trireme/cli/validators.h"

#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr double kMaxDuration_s = 1e6;

// nullopt: no duration, or out of bounds.
std::optional<double> parse_duration(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (code != std::errc() || !std::isfinite(number)) return std::nullopt;
  const std::string unit(stop, end);
  for (const auto& [name, seconds] : {std::pair("", 1.0), {"s", 1.0}, {"m", 60.0}, {"h", 3600.0}}) {
    if (unit != name) continue;
    number *= seconds;
    return number > 0 && number <= kMaxDuration_s ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

// CLI11's own ranges print the limits of a double, and its numbers may be octal.
CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        int64_t value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool is_number = code == std::errc() && end == text.data() + text.size();
        if (is_number && value >= least && value <= most) {
          text = fmt::format("{}", value);  // used by transform(), and not by check()
          return "";
        }
        const bool is_more =
            text.find_first_not_of("0123456789") == std::string::npos &&
            (code == std::errc::result_out_of_range || (is_number && value > most));
        return fmt::format("{} is not a whole number of at least {}{}", text.empty() ? "''" : text,
                           least, is_more ? fmt::format(" and at most {}", most) : "");
      },
      "");
}

CLI::Validator number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (end != text.data() + text.size() || code == std::errc::invalid_argument) {
          return fmt::format("'{}' is not a number", text);
        }
        if (code == std::errc::result_out_of_range) {
          return fmt::format("{} is beyond the range of a double, some 1e-308 to 1e308", text);
        }
        return "";
      },
      "");
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) -> std::string { return text.empty() ? "it is empty" : ""; }, "");
}

CLI::Validator duration() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (parse_duration(text).has_value()) return "";
        return fmt::format("'{}' is no time such as 30s, 2m or 1h, up to 1e6 seconds", text);
      },
      "");
}

double seconds_of_duration(const std::string& text) {
  const std::optional<double> seconds = parse_duration(text);
  TRIREME_CHECK(seconds.has_value(), "the validator has let a wrong duration pass");
  return *seconds;
}

CLI::Validator expression() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        constexpr size_t kMost = 1000;
        if (text.empty()) return "it is empty";
        if (text.size() <= kMost) return "";
        return fmt::format("the expression has {} characters, more than {}", text.size(), kMost);
      },
      "");
}

CLI::Validator positive() { return whole_number(1); }

CLI::Validator positive_count() { return whole_number(1, std::numeric_limits<int32_t>::max()); }

Pair split_pair(const std::string& text) {
  const size_t equals = text.find('=');
  return {text.substr(0, equals), equals == std::string::npos ? "" : text.substr(equals + 1)};
}

CLI::Validator pair_of(const std::string& form) {
  return CLI::Validator(
      [form](std::string& text) -> std::string {
        const Pair pair = split_pair(text);
        if (!pair.first.empty() && !pair.second.empty()) return "";
        return fmt::format("'{}' is not {}", text, form);
      },
      "");
}

}  // namespace trireme
