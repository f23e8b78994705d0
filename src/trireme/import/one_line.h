// Names in a file that anybody may have written appear in messages; a message stays one line.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/result.h"

namespace trireme {

// Control characters become \xNN, and what is longer than a screen is cut.
[[nodiscard]] inline std::string one_line(std::string_view text) {
  constexpr size_t kMaxSize = 2000;
  std::string line;
  for (const char c : text.substr(0, kMaxSize)) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F) {
      line += fmt::format("\\x{:02x}", code);
    } else {
      line += c;
    }
  }
  return text.size() > kMaxSize ? line + " [cut]" : line;
}

template <typename T>
[[nodiscard]] Result<T> with_one_line_error(Result<T> result) {
  if (result.ok()) return result;
  return Error{one_line(result.error().message)};
}

}  // namespace trireme
