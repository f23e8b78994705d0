#include "trireme/cli/result_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"

namespace trireme {

std::string result_text(const RunRequest& request, const std::string& line) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("event", "") != "result") return "";
  json.erase("event");
  if (request.wants_json) return json.dump() + "\n";
  if (request.is_training) return "";
  return fmt::format("eval loss {} over {} items\n", json.value("eval_loss", 0.0),
                     json.value("items", 0.0));
}

}  // namespace trireme
