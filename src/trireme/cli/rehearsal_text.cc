#include "trireme/cli/rehearsal_text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "trireme/trace/report_text.h"

namespace trireme {

std::string rehearsal_text(const nlohmann::ordered_json& result) {
  const double simulated = result.value("simulated_step_ns", 0.0);
  const double rehearsed = result.value("rehearsed_step_ns", 0.0);
  const auto steps = result.value("steps_ns", std::vector<double>());
  std::string text = fmt::format("simulated step  {}\n", time_text(simulated));
  text += fmt::format("rehearsed step  {}, the median of {}", time_text(rehearsed), steps.size());
  if (steps.size() > 1) {
    const auto [least, most] = std::ranges::minmax(steps);
    text += fmt::format(" from {} to {}", time_text(least), time_text(most));
  }
  text += fmt::format("\nratio           {:.4f} simulated / rehearsed\n",
                      rehearsed > 0 ? simulated / rehearsed : 0.0);
  text += fmt::format("{:>6}{:>13}{:>13}{:>13}{:>15}\n", "rank", "compute", "late", "wait",
                      "simulated wait");
  for (const auto& rank : result.value("ranks", nlohmann::ordered_json::array())) {
    text += fmt::format(
        "{:>6}{:>13}{:>13}{:>13}{:>15}\n", rank.value("rank", 0),
        time_text(rank.value("compute_ns", 0.0)), time_text(rank.value("late_ns", 0.0)),
        time_text(rank.value("wait_ns", 0.0)), time_text(rank.value("simulated_wait_ns", 0.0)));
  }
  return text;
}

}  // namespace trireme
