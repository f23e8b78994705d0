// LineCursor: reads one line of a text form from left to right; the line outlives it. Spaces
// between tokens mean nothing.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/base/result.h"

namespace trireme {

class LineCursor {
 public:
  explicit LineCursor(std::string_view line) : rest_(line) {}

  void skip_spaces() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  // Whether the token is next; if so, goes on behind it.
  bool take(std::string_view token) {
    skip_spaces();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  Status expect(std::string_view token) {
    if (take(token)) return Status();
    return Error{fmt::format("'{}' expected at '{}'", token, one_line(rest_, 24))};
  }
  // In quotes, or up to the next space.
  Result<std::string> take_word() {
    if (is_at('"')) return take_quoted();
    std::string word(rest_.substr(0, rest_.find(' ')));
    rest_.remove_prefix(word.size());
    return word;
  }
  // Up to one of `stops`, parentheses nested inside are skipped.
  std::string_view take_until(std::string_view stops) {
    skip_spaces();
    size_t length = 0;
    int depth = 0;
    while (length < rest_.size()) {
      const char c = rest_[length];
      if (depth == 0 && stops.find(c) != std::string_view::npos) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
      ++length;
    }
    const std::string_view token = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return token;
  }
  Result<std::string> take_quoted() {
    TRIREME_TRY(expect("\""));
    std::string text;
    while (!rest_.empty() && rest_[0] != '"') {
      if (rest_[0] == '\\' && rest_.size() > 1) {
        text += rest_[1] == 'n' ? '\n' : rest_[1];
        rest_.remove_prefix(2);
      } else {
        text += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    TRIREME_TRY(expect("\""));
    return text;
  }
  [[nodiscard]] bool is_at(char c) {
    skip_spaces();
    return !rest_.empty() && rest_[0] == c;
  }
  [[nodiscard]] bool is_done() {
    skip_spaces();
    return rest_.empty();
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace trireme
