// What others wrote (a file, an option, a name in an archive) appears in messages; a message stays
// one line that can be read.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/result.h"

namespace trireme {

// Control characters become \xNN, and what is longer than a screen, or `max_size`, is cut.
[[nodiscard]] inline std::string one_line(std::string_view text, size_t max_size = 2000) {
  std::string line;
  for (const char c : text) {
    if (line.size() >= max_size) return line + " [cut]";
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F) {
      line += fmt::format("\\x{:02x}", code);
    } else {
      line += c;
    }
  }
  return line;
}

// A word of a text or of the command line, in quotes, for a message that says what is wrong with
// it: the rest of the sentence is not to be lost behind a word of many thousand characters.
[[nodiscard]] inline std::string in_quotes(std::string_view word) {
  return "\"" + one_line(word, 60) + "\"";
}

template <typename T>
[[nodiscard]] Result<T> with_one_line_error(Result<T> result) {
  if (result.ok()) return result;
  return Error{one_line(result.error().message)};
}

}  // namespace trireme
