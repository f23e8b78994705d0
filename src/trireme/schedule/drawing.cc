#include "trireme/schedule/drawing.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme {

std::string draw(const Schedule& schedule, const PassCosts& costs) {
  std::vector<std::vector<std::string>> lanes;
  size_t width = 0;
  for (const std::vector<TimedAction>& actions : timetable(schedule, costs)) {
    std::vector<std::string>& lane = lanes.emplace_back();
    for (const TimedAction& timed : actions) {
      lane.resize(static_cast<size_t>(timed.begin), ".");
      lane.push_back(to_text(timed.action));
      width = std::max(width, lane.back().size() + 1);
      lane.resize(static_cast<size_t>(timed.end), "--");
    }
  }
  std::string text;
  const size_t rank_width = fmt::formatted_size("{}", lanes.size() - 1);
  for (size_t rank = 0; rank < lanes.size(); ++rank) {
    std::string line = fmt::format("rank {:>{}} | ", rank, rank_width);
    for (const std::string& cell : lanes[rank]) line += fmt::format("{:<{}}", cell, width);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace trireme
