// The HTML page and the trace of Chrome: both are lists of all events.

#include <cstdint>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/trace/report_page_template.h"
#include "trireme/trace/report_text.h"

namespace trireme {
namespace {

SimTime end_of(const TimelineEvent& event, SimTime last) {
  return event.end == kNotOver ? last : event.end;
}

SimTime last_time(const Timeline& timeline) {
  const TimelineStatistics statistics = statistics_of(timeline);
  return statistics.begin + statistics.wall;
}

std::string name_of(const TimelineEvent& event) {
  return event.event_class == EventClass::kEvaluation ? "evaluation" : to_text(event.action);
}

// [rank, class, name, begin, end, step, peer, bytes] of each event; names need no escapes.
std::string events_json(const Timeline& timeline) {
  const SimTime last = last_time(timeline);
  std::string text = "[";
  for (const TimelineEvent& event : timeline.events) {
    if (text.size() > 1) text += ",";
    text += fmt::format("[{},{},\"{}\",{},{},{},{},{}]", event.rank,
                        static_cast<int>(event.event_class), name_of(event), event.begin,
                        end_of(event, last), event.step, event.peer, event.bytes);
  }
  return text + "]";
}

std::string path_json(const TimelineStatistics& statistics) {
  std::string text = "[";
  for (const PathPiece& piece : statistics.critical_path) {
    if (text.size() > 1) text += ",";
    const bool travels = piece.slice == Slice::kTransfer;
    text +=
        fmt::format("[{},{},{},{}]", piece.begin, piece.end, piece.rank, travels ? piece.peer : -1);
  }
  return text + "]";
}

std::string_view class_name(EventClass event_class) {
  constexpr std::array<std::string_view, kNumEventClasses> kNames = {
      "forward", "backward", "input gradient", "weight gradient", "recompute",
      "update",  "input",    "evaluation",     "wait",            "transfer",  "collective"};
  return kNames[static_cast<size_t>(event_class)];
}

// Within a script of HTML no "<" may begin a tag.
std::string within_script(std::string text) {
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

}  // namespace

std::string report_page(const Timeline& timeline, const Timeline* prediction,
                        const std::string& title) {
  const TimelineStatistics statistics = statistics_of(timeline);
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(report_json(timeline, prediction));
  json["begin_ns"] = statistics.begin;
  std::string data = fmt::format("{{\"title\":{},\"statistics\":{},\"events\":{},\"path\":{}",
                                 json_text(nlohmann::json(title)), json_text(json),
                                 events_json(timeline), path_json(statistics));
  if (prediction != nullptr) {
    data += fmt::format(",\"prediction\":{{\"statistics\":{},\"events\":{}}}",
                        json_text(json["prediction"]), events_json(*prediction));
  }
  data = within_script(data + "}");
  std::string page(kReportPageTemplate);
  constexpr std::string_view kPlace = "@DATA@";
  return page.replace(page.find(kPlace), kPlace.size(), data);
}

std::string chrome_trace(const Timeline& timeline) {
  const SimTime last = last_time(timeline);
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  for (int32_t rank = 0; rank < timeline.num_ranks(); ++rank) {
    text += fmt::format(
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0} "
        "(stage {1}, replica {2})\"}}}},\n",
        rank, rank % timeline.num_stages, rank / timeline.num_stages);
  }
  int64_t id = 0;
  for (const TimelineEvent& event : timeline.events) {
    const double begin = static_cast<double>(event.begin) * 1e-3;
    const double end = static_cast<double>(end_of(event, last)) * 1e-3;
    const std::string head = fmt::format(
        "\"name\":\"{}{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":0,\"args\":{{\"step\":{},\"peer\":{},"
        "\"bytes\":{}}}",
        event.event_class == EventClass::kWait ? "wait " : "", name_of(event),
        class_name(event.event_class), event.rank, event.step, event.peer, event.bytes);
    if (is_on_compute_lane(event.event_class)) {
      text += fmt::format("{{\"ph\":\"X\",{},\"ts\":{:.3f},\"dur\":{:.3f}}},\n", head, begin,
                          end - begin);
    } else {
      // Transfers overlap, which events on a thread must not.
      ++id;
      text += fmt::format("{{\"ph\":\"b\",{},\"id\":{},\"ts\":{:.3f}}},\n", head, id, begin);
      text += fmt::format("{{\"ph\":\"e\",{},\"id\":{},\"ts\":{:.3f}}},\n", head, id, end);
    }
  }
  // Without the comma of the last line.
  return text.substr(0, text.size() - 2) + "\n]}\n";
}

}  // namespace trireme
