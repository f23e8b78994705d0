// What a rehearsal found, for people.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trireme {

// `result`: of worker/rehearse.h.
[[nodiscard]] std::string rehearsal_text(const nlohmann::ordered_json& result);

}  // namespace trireme
