// The text form of a Timeline. Files have millions of lines: words are views, numbers from_chars.

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"
#include "trireme/trace/timeline.h"

namespace trireme {
namespace {

// Takes what is before the separator, or all, off the text.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view piece = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return piece;
}

// Decimal digits without sign or leading zeros.
template <typename Number>
bool read_number(std::string_view text, Number& number) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  if (text.size() > 1 && text[0] == '0') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

template <typename Number>
bool read_numbers(std::string_view text, std::vector<Number>& numbers) {
  while (!text.empty()) {
    const bool is_last = text.find(',') == std::string_view::npos;
    Number number = 0;
    if (!read_number(take(text, ','), number) || text.empty() != is_last) return false;
    numbers.push_back(number);
  }
  return !numbers.empty();
}

bool read_names(std::string_view text, std::vector<std::string>& names) {
  while (!text.empty()) names.emplace_back(take(text, ','));
  return !names.empty();
}

struct Field {
  std::string_view name;
  bool (*set)(Timeline& timeline, std::string_view value);
};

constexpr std::array<Field, 8> kFields = {{
    {"stages", [](Timeline& t, std::string_view v) { return read_number(v, t.num_stages); }},
    {"replicas", [](Timeline& t, std::string_view v) { return read_number(v, t.num_replicas); }},
    {"chunks", [](Timeline& t, std::string_view v) { return read_number(v, t.num_chunks); }},
    {"hosts", [](Timeline& t, std::string_view v) { return read_names(v, t.hosts); }},
    {"host-of-rank",
     [](Timeline& t, std::string_view v) { return read_numbers(v, t.host_of_rank); }},
    {"peak-bytes", [](Timeline& t, std::string_view v) { return read_numbers(v, t.peak_bytes); }},
    {"dropped", [](Timeline& t, std::string_view v) { return read_number(v, t.dropped_events); }},
    {"event-cost", [](Timeline& t, std::string_view v) { return read_number(v, t.event_cost); }},
}};

Result<Timeline> parse_header(std::string_view line) {
  if (take(line, ' ') != "timeline") {
    return Error{"this is no timeline: its first line does not begin with \"timeline\""};
  }
  Timeline timeline;
  timeline.source = take(line, ' ');
  timeline.builder = take(line, ' ');
  std::array<bool, kFields.size()> seen = {};
  while (!line.empty()) {
    const std::string_view word = take(line, ' ');
    const std::string_view name = word.substr(0, word.find('='));
    const auto field = std::ranges::find(kFields, name, &Field::name);
    if (field == kFields.end()) return Error{fmt::format("unknown field {}", in_quotes(word))};
    bool& is_seen = seen[static_cast<size_t>(field - kFields.begin())];
    if (std::exchange(is_seen, true)) {
      return Error{fmt::format("field \"{}\" is given twice", name)};
    }
    if (name.size() == word.size() || !field->set(timeline, word.substr(name.size() + 1))) {
      return Error{fmt::format("field {} has a value that cannot be read", in_quotes(word))};
    }
  }
  if (!seen[0]) return Error{"field \"stages=\" is missing"};
  return timeline;
}

bool read_attribute(std::string_view word, TimelineEvent& event) {
  std::string_view value = word;
  const std::string_view name = take(value, '=');
  if (name == "step") return read_number(value, event.step);
  if (name == "peer") return read_number(value, event.peer);
  if (name == "bytes") return read_number(value, event.bytes);
  return false;
}

Result<TimelineEvent> parse_event(std::string_view line) {
  TimelineEvent event;
  if (take(line, ' ') != "rank" || !read_number(take(line, ' '), event.rank)) {
    return Error{"expected \"rank N ACTION BEGIN END\""};
  }
  std::string_view word = take(line, ' ');
  std::optional<EventClass> event_class;
  if (word == "wait") event_class = EventClass::kWait;
  if (word == "input") event_class = EventClass::kInput;
  if (word == "evaluation") event_class = EventClass::kEvaluation;
  if (event_class.has_value()) word = take(line, ' ');
  TRIREME_TRY(event.action, parse_action(word));
  event.event_class = event_class.value_or(event_class_of(event.action.kind));
  const std::string_view begin = take(line, ' ');
  const std::string_view end = take(line, ' ');
  if (end == "-") event.end = kNotOver;
  if (!read_number(begin, event.begin) || (end != "-" && !read_number(end, event.end))) {
    return Error{
        fmt::format("expected two times, found {} and {}", in_quotes(begin), in_quotes(end))};
  }
  if (end != "-" && event.end == kNotOver) return Error{"a time is too large"};
  while (!line.empty()) {
    word = take(line, ' ');
    if (!read_attribute(word, event)) {
      return Error{
          fmt::format("{} is none of \"step=N\", \"peer=N\", \"bytes=N\"", in_quotes(word))};
    }
  }
  return event;
}

}  // namespace

std::string to_text(const TimelineEvent& event) {
  const std::string_view word = event.event_class == EventClass::kWait         ? "wait "
                                : event.event_class == EventClass::kInput      ? "input "
                                : event.event_class == EventClass::kEvaluation ? "evaluation "
                                                                               : "";
  std::string text =
      fmt::format("rank {} {}{} {} ", event.rank, word, to_text(event.action), event.begin);
  text += event.end == kNotOver ? "-" : fmt::format("{}", event.end);
  if (event.step != 0) text += fmt::format(" step={}", event.step);
  if (event.peer >= 0) text += fmt::format(" peer={}", event.peer);
  if (event.bytes != 0) text += fmt::format(" bytes={}", event.bytes);
  return text;
}

std::string to_text(const Timeline& timeline) {
  std::string text = fmt::format("timeline {} {} stages={}", timeline.source, timeline.builder,
                                 timeline.num_stages);
  if (timeline.num_replicas != 1) text += fmt::format(" replicas={}", timeline.num_replicas);
  if (timeline.num_chunks != 1) text += fmt::format(" chunks={}", timeline.num_chunks);
  if (!timeline.hosts.empty()) {
    text += fmt::format(" hosts={} host-of-rank={}", fmt::join(timeline.hosts, ","),
                        fmt::join(timeline.host_of_rank, ","));
  }
  if (!timeline.peak_bytes.empty()) {
    text += fmt::format(" peak-bytes={}", fmt::join(timeline.peak_bytes, ","));
  }
  if (timeline.dropped_events != 0) text += fmt::format(" dropped={}", timeline.dropped_events);
  if (timeline.event_cost != 0) text += fmt::format(" event-cost={}", timeline.event_cost);
  text += "\n";
  for (const TimelineEvent& event : timeline.events) text += to_text(event) + "\n";
  return text;
}

Result<Timeline> parse_timeline(std::string_view text) {
  // A run that was killed left a part of a line.
  text = text.substr(0, text.rfind('\n') + 1);
  if (text.empty()) return Error{"line 1: this is no timeline: it has no whole line"};
  Result<Timeline> header = parse_header(take(text, '\n'));
  if (header.ok()) {
    if (const Status status = verify_timeline(header.value()); !status.ok())
      header = status.error();
  }
  if (!header.ok()) return while_doing("line 1", header.error());
  Timeline timeline = std::move(header).value();
  for (int64_t line_number = 2; !text.empty(); ++line_number) {
    Result<TimelineEvent> event = parse_event(take(text, '\n'));
    if (event.ok()) {
      if (const Status status = verify_event(timeline, event.value()); !status.ok()) {
        event = status.error();
      }
    }
    if (!event.ok()) return while_doing(fmt::format("line {}", line_number), event.error());
    timeline.events.push_back(event.value());
  }
  return timeline;
}

}  // namespace trireme
