// JSON as text. The library refuses bytes that are not UTF-8, but paths and names of others may
// have them.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trireme {

// Bytes that are not UTF-8 become U+FFFD. `indent` as the library's: -1 is one line.
template <typename Json>
[[nodiscard]] std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

[[nodiscard]] inline std::string as_utf8(std::string_view text) {
  return nlohmann::json::parse(json_text(nlohmann::json(text))).get<std::string>();
}

[[nodiscard]] inline bool is_utf8(std::string_view text) { return as_utf8(text) == text; }

}  // namespace trireme
