#include "trireme/cli/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kMaxHosts = size_t{1} << 16;
constexpr size_t kMaxDigits = 9;

// What is between two commas, or all of it: commas in brackets part ranges, not hosts.
std::string_view first_item(std::string_view text) {
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && depth > 0) --depth;
    if (text[i] == ',' && depth == 0) return text.substr(0, i);
  }
  return text;
}

// "07" is 7 in two digits.
Result<int64_t> number_of(std::string_view digits) {
  int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (code != std::errc() || stop != end || digits[0] == '-' || digits.size() > kMaxDigits) {
    return Error{fmt::format("'{}' is no number", one_line(digits, 60))};
  }
  return number;
}

// The numbers of "01-03,7", with their zeros.
Result<Names> expand_ranges(std::string_view ranges) {
  Names numbers;
  while (true) {
    const std::string_view range = first_item(ranges);
    const size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const std::string_view to =
        dash == std::string_view::npos ? from : std::string_view(range.substr(dash + 1));
    TRIREME_TRY(const int64_t first, number_of(from));
    TRIREME_TRY(const int64_t last, number_of(to));
    if (last < first) return Error{fmt::format("{} ends before it begins", one_line(range, 60))};
    if (numbers.size() + static_cast<size_t>(last - first) >= kMaxHosts) {
      return Error{"it has too many hosts"};
    }
    for (int64_t number = first; number <= last; ++number) {
      numbers.push_back(fmt::format("{:0{}}", number, from.size()));
    }
    if (range.size() == ranges.size()) return numbers;
    ranges.remove_prefix(range.size() + 1);
  }
}

// Each of the hosts with each of the endings.
Result<Names> product(const Names& hosts, const Names& endings) {
  if (hosts.size() * endings.size() > kMaxHosts) return Error{"it has too many hosts"};
  Names result;
  for (const std::string& host : hosts) {
    for (const std::string& ending : endings) result.push_back(host + ending);
  }
  return result;
}

Result<Names> expand_item(std::string_view item) {
  Names hosts = {""};
  while (!item.empty()) {
    const size_t open = std::min(item.find('['), item.size());
    const std::string_view name = item.substr(0, open);
    if (name.find_first_of("] \t") != std::string_view::npos) {
      return Error{fmt::format("'{}' is no name", one_line(name, 60))};
    }
    TRIREME_TRY(hosts, product(hosts, {std::string(name)}));
    item.remove_prefix(open);
    if (item.empty()) break;
    const size_t close = item.find(']');
    if (close == std::string_view::npos) return Error{"a bracket is not closed"};
    TRIREME_TRY(const Names numbers, expand_ranges(item.substr(1, close - 1)));
    TRIREME_TRY(hosts, product(hosts, numbers));
    item.remove_prefix(close + 1);
  }
  if (hosts.front().empty()) return Error{"a name is empty"};
  return hosts;
}

}  // namespace

Result<Names> expand_host_list(std::string_view text) {
  Names hosts;
  while (true) {
    const std::string_view item = first_item(text);
    TRIREME_TRY(const Names more, expand_item(item));
    if (hosts.size() + more.size() > kMaxHosts) return Error{"it has too many hosts"};
    hosts.insert(hosts.end(), more.begin(), more.end());
    if (item.size() == text.size()) return hosts;
    text.remove_prefix(item.size() + 1);
  }
}

}  // namespace trireme
