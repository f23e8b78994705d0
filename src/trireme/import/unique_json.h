// JSON whose objects must not have a key twice: parsers disagree on which of the two counts.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/result.h"

namespace trireme {

// Errors: it is not JSON, not an object, or an object in it has a key twice.
[[nodiscard]] inline Result<nlohmann::json> parse_unique_json(std::string_view text) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of the objects around the current place
  std::string twice;
  const auto check = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second && twice.empty()) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), check, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{"is not a JSON object"};
  if (!twice.empty()) return Error{fmt::format("has {} twice", twice)};
  return json;
}

}  // namespace trireme
