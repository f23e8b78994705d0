// The HTML page and the trace of Chrome: both are lists of all events.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/trace/matches.h"
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

// What the events of compute lanes are, each once, as [class, name, peer]; and by rank, four
// numbers an event in the order of time: which of these, the time since the end of the event
// before, its length, and how many steps later it is. A page holds millions of events: most of
// these numbers are a digit or two. Names need no escapes.
std::string lanes_json(const Timeline& timeline) {
  const SimTime last = last_time(timeline);
  std::vector<std::vector<const TimelineEvent*>> lanes(static_cast<size_t>(timeline.num_ranks()));
  for (const TimelineEvent& event : timeline.events) {
    if (!is_on_compute_lane(event.event_class)) continue;
    lanes[static_cast<size_t>(event.rank)].push_back(&event);
  }
  using Kind = std::tuple<EventClass, ActionKind, int32_t, int32_t, int32_t>;
  std::map<Kind, size_t> index_of_kind;
  std::string kinds;
  std::string text;
  for (std::vector<const TimelineEvent*>& lane : lanes) {
    std::ranges::stable_sort(lane, {}, &TimelineEvent::begin);
    text += text.empty() ? "[" : ",[";
    SimTime reached = 0;
    int32_t step = 0;
    for (const TimelineEvent* event : lane) {
      const Action& action = event->action;
      const auto [kind, is_new] = index_of_kind.try_emplace(
          {event->event_class, action.kind, action.index, action.chunk, event->peer},
          index_of_kind.size());
      if (is_new) {
        kinds += fmt::format("{}[{},\"{}\",{}]", kinds.empty() ? "" : ",",
                             static_cast<int>(event->event_class), name_of(*event), event->peer);
      }
      const SimTime end = end_of(*event, last);
      fmt::format_to(std::back_inserter(text), "{}{},{},{},{}", event == lane.front() ? "" : ",",
                     kind->second, event->begin - reached, end - event->begin, event->step - step);
      reached = end;
      step = event->step;
    }
    text += "]";
  }
  return fmt::format("\"kinds\":[{}],\"lanes\":[{}]", kinds, text);
}

// Of each transfer of which both sides are known five numbers: the time from the begin of the one
// before to its begin, from its begin to its end, its sender, its receiver, and 1 for a gradient.
std::string flows_json(const Timeline& timeline) {
  const SimTime last = last_time(timeline);
  const auto event = [&](int64_t i) -> const TimelineEvent& {
    return timeline.events[static_cast<size_t>(i)];
  };
  std::vector<TransferMatch> transfers = match_events(timeline).transfers;
  std::erase_if(transfers,
                [](const TransferMatch& each) { return each.send < 0 || each.receive < 0; });
  std::ranges::stable_sort(transfers, {},
                           [&](const TransferMatch& each) { return event(each.send).begin; });
  std::string text;
  SimTime reached = 0;
  for (const TransferMatch& each : transfers) {
    const SimTime begin = event(each.send).begin;
    const bool is_gradient = event(each.send).action.kind == ActionKind::kSendGradient;
    fmt::format_to(std::back_inserter(text), "{}{},{},{},{},{}", text.empty() ? "" : ",",
                   begin - reached, end_of(event(each.receive), last) - begin, each.sender,
                   each.receiver, is_gradient ? 1 : 0);
    reached = begin;
  }
  return fmt::format("\"flows\":[{}]", text);
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
      "forward", "backward",   "input gradient", "weight gradient", "recompute", "update",
      "input",   "evaluation", "wait",           "transfer",        "collective"};
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
  std::string data = fmt::format("{{\"title\":{},\"statistics\":{},{},{},\"path\":{}",
                                 json_text(nlohmann::json(title)), json_text(json),
                                 lanes_json(timeline), flows_json(timeline), path_json(statistics));
  if (prediction != nullptr) {
    data += fmt::format(",\"prediction\":{{\"statistics\":{},{}}}", json_text(json["prediction"]),
                        lanes_json(*prediction));
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
