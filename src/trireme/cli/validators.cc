#include "trireme/cli/validators.h"

#include <charconv>

#include <fmt/format.h>

namespace trireme {

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
