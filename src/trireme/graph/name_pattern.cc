// POSIX regcomp, not <regex>: no exceptions, and no stack that grows with the name.

#include "trireme/graph/name_pattern.h"

#include <algorithm>
#include <array>

#include <regex.h>

#include <fmt/format.h>

namespace trireme {

struct NamePattern::Compiled {
  regex_t regex = {};
  bool is_compiled = false;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (is_compiled) regfree(&regex);
  }
};

Result<NamePattern> NamePattern::make(const std::string& expression) {
  auto compiled = std::make_shared<Compiled>();
  const int code = regcomp(&compiled->regex, expression.c_str(), REG_EXTENDED | REG_NOSUB);
  if (code != 0) {
    std::array<char, 128> text = {};
    regerror(code, &compiled->regex, text.data(), text.size());
    return Error{fmt::format("'{}' is not a regular expression: {}", expression, text.data())};
  }
  compiled->is_compiled = true;
  NamePattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

bool NamePattern::matches(const std::string& name) const {
  return regexec(&compiled_->regex, name.c_str(), 0, nullptr, 0) == 0;
}

bool NamePattern::matches_any(const std::vector<std::string>& names) const {
  return std::any_of(names.begin(), names.end(),
                     [this](const std::string& name) { return matches(name); });
}

}  // namespace trireme
