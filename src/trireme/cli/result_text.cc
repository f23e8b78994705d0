#include "trireme/cli/result_text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/human_bytes.h"
#include "trireme/base/json_text.h"
#include "trireme/cli/rehearsal_text.h"
#include "trireme/trace/report_text.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

std::string row(const std::string& name, const std::string& predicted, const std::string& measured,
                double predicted_number, double measured_number) {
  return fmt::format("  {:<16} {:>12} {:>12} {:>+9.1f} %\n", name, predicted, measured,
                     100 * (predicted_number / measured_number - 1));
}

// Of a training with --predict.
std::string prediction_text(const Json& result) {
  const Json& predicted = result["predicted"];
  const double step = predicted.value("step_seconds", 0.0);
  const double measured = result.value("step_seconds", 0.0);
  std::string text =
      fmt::format("{:<18} {:>12} {:>12} {:>11}\n", "", "predicted", "measured", "error");
  text += row("step", time_text(1e9 * step), time_text(1e9 * measured), step, measured);
  const auto peaks = result.value("peak_bytes", std::vector<int64_t>());
  const auto predicted_peaks = predicted.value("peak_bytes", std::vector<int64_t>());
  for (size_t r = 0; r < std::min(peaks.size(), predicted_peaks.size()); ++r) {
    text += row(fmt::format("memory of rank {}", r), human_bytes(predicted_peaks[r]),
                human_bytes(peaks[r]), static_cast<double>(predicted_peaks[r]),
                static_cast<double>(peaks[r]));
  }
  for (const std::string& note : predicted.value("notes", std::vector<std::string>())) {
    text += fmt::format("  {}\n", note);
  }
  return text;
}

}  // namespace

std::string result_text(const RunRequest& request, const std::string& line) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("event", "") != "result") return "";
  json.erase("event");
  if (request.wants_json) return json.dump() + "\n";
  if (request.probe.has_value()) {
    return request.probe->output.empty() ? json.value("cluster", "") : json.value("table", "");
  }
  if (request.rehearsal.has_value()) return rehearsal_text(json);
  if (request.is_training) return json.contains("predicted") ? prediction_text(json) : "";
  return fmt::format("eval loss {} over {} items\n", json.value("eval_loss", 0.0),
                     json.value("items", 0.0));
}

}  // namespace trireme
