#include "trireme/trace/timeline.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/base/one_line.h"

namespace trireme {
namespace {

bool is_word(std::string_view text, std::string_view forbidden) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != 0x7F &&
           forbidden.find(c) == std::string_view::npos;
  });
}

Status verify_header(const Timeline& timeline) {
  if (timeline.source != "measured" && timeline.source != "simulated") {
    return Error{fmt::format("a timeline is \"measured\" or \"simulated\", not {}",
                             in_quotes(timeline.source))};
  }
  if (!is_word(timeline.builder, "=")) {
    return Error{fmt::format("{} is no name of a schedule", in_quotes(timeline.builder))};
  }
  const int64_t num_ranks = int64_t{timeline.num_stages} * timeline.num_replicas;
  if (timeline.num_stages < 1 || timeline.num_replicas < 1 || num_ranks > kMaxTimelineRanks) {
    return Error{fmt::format("stages={} replicas={}: both are at least 1, their product at most {}",
                             timeline.num_stages, timeline.num_replicas, kMaxTimelineRanks)};
  }
  if (timeline.num_chunks < 1 || timeline.num_chunks > kMaxChunks) {
    return Error{fmt::format("chunks={}: it is between 1 and {}", timeline.num_chunks, kMaxChunks)};
  }
  if (timeline.hosts.empty() != timeline.host_of_rank.empty()) {
    return Error{"of \"hosts=\" and \"host-of-rank=\" both are given or none"};
  }
  const auto num_hosts = static_cast<int64_t>(timeline.hosts.size());
  for (const std::string& host : timeline.hosts) {
    if (!is_word(host, ",")) return Error{fmt::format("{} is no name of a host", in_quotes(host))};
  }
  for (const auto& [name, size] : {std::pair{"host-of-rank", timeline.host_of_rank.size()},
                                   std::pair{"peak-bytes", timeline.peak_bytes.size()}}) {
    if (size == 0 || static_cast<int64_t>(size) == num_ranks) continue;
    return Error{fmt::format("{}= has {} numbers for {} ranks", name, size, num_ranks)};
  }
  for (const int32_t host : timeline.host_of_rank) {
    if (host < 0 || host >= num_hosts) {
      return Error{fmt::format("host-of-rank= names host {} of {}", host, num_hosts)};
    }
  }
  if (timeline.dropped_events < 0 || timeline.event_cost < 0 || timeline.event_cost > kMaxTime ||
      std::ranges::any_of(timeline.peak_bytes, [](int64_t bytes) { return bytes < 0; })) {
    return Error{"peak-bytes=, dropped= and event-cost= are not negative"};
  }
  return Status();
}

bool fits(EventClass event_class, ActionKind kind) {
  if (event_class == EventClass::kWait) return !is_compute(kind);
  if (event_class == EventClass::kInput || event_class == EventClass::kEvaluation) {
    return is_forward(kind);
  }
  return event_class == event_class_of(kind);
}

}  // namespace

EventClass event_class_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
    case ActionKind::kForwardKeepingInput:
      return EventClass::kForward;
    case ActionKind::kRecompute:
      return EventClass::kRecompute;
    case ActionKind::kBackward:
      return EventClass::kBackward;
    case ActionKind::kInputGradient:
      return EventClass::kInputGradient;
    case ActionKind::kWeightGradient:
      return EventClass::kWeightGradient;
    case ActionKind::kUpdate:
      return EventClass::kUpdate;
    case ActionKind::kSendActivation:
    case ActionKind::kReceiveActivation:
    case ActionKind::kSendGradient:
    case ActionKind::kReceiveGradient:
      return EventClass::kTransfer;
    case ActionKind::kAllReduce:
    case ActionKind::kTiedReduce:
    case ActionKind::kScalars:
    case ActionKind::kRowExchange:
      return EventClass::kCollective;
  }
  check_failed(__FILE__, __LINE__, "an action of a known kind", "");
}

Status verify_event(const Timeline& timeline, const TimelineEvent& event) {
  const auto refuse = [&](std::string_view why) {
    return Error{fmt::format("rank {} {}: {}", event.rank, to_text(event.action), why)};
  };
  if (event.rank < 0 || event.rank >= timeline.num_ranks()) {
    return refuse(fmt::format("ranks are 0 to {}", timeline.num_ranks() - 1));
  }
  if (event.peer < -1 || event.peer >= timeline.num_ranks() || event.peer == event.rank) {
    return refuse(fmt::format("peer {} is no other rank", event.peer));
  }
  if (event.begin < 0 || event.begin > kMaxTime ||
      (event.end != kNotOver && (event.end < event.begin || event.end > kMaxTime))) {
    return refuse(fmt::format("it lasts from {} to {}; times are ascending and between 0 and {}",
                              event.begin, event.end, kMaxTime));
  }
  if (event.step < 0 || event.bytes < 0) return refuse("steps and bytes are not negative");
  const int32_t num_chunks = has_micro_batch(event.action.kind) ? timeline.num_chunks : 1;
  if (event.action.batch != 0 || event.action.chunk < 0 || event.action.chunk >= num_chunks ||
      event.action.index < 0 ||
      (event.action.kind == ActionKind::kUpdate && event.action.index != 0)) {
    return refuse(fmt::format("the timeline has no such action; chunks={}", timeline.num_chunks));
  }
  if (fits(event.event_class, event.action.kind)) return Status();
  if (event.event_class == EventClass::kInput) return refuse("\"input\" is followed by a forward");
  if (event.event_class == EventClass::kEvaluation) {
    return refuse("\"evaluation\" is followed by a forward");
  }
  return refuse(event.event_class == EventClass::kWait
                    ? "\"wait\" is followed by a transfer or a collective"
                    : "its class is that of other actions");
}

Status verify_timeline(const Timeline& timeline) {
  TRIREME_TRY(verify_header(timeline));
  for (const TimelineEvent& event : timeline.events) TRIREME_TRY(verify_event(timeline, event));
  return Status();
}

}  // namespace trireme
