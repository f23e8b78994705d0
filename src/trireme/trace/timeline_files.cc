#include "trireme/trace/timeline_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "trireme/trace/clocks.h"
#include "trireme/trace/part.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// 13 days; sums of as many as a run has hosts do not overflow.
constexpr SimTime kMaxSpan = SimTime{1} << 50;
constexpr size_t kMaxHosts = 2048;

struct Part {
  PartHeader header;
  std::vector<PartEvent> events;  // that the ring still has, in the order of their begin
};

std::string text_of(std::span<const char> characters) {
  return {characters.begin(), std::ranges::find(characters, '\0')};
}

// Nothing: the bytes are no part of this program.
std::optional<Part> read_part(std::span<const std::byte> bytes) {
  Part part;
  PartHeader& header = part.header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::span<const std::byte> ring = bytes.subspan(sizeof header);
  const auto num_places = static_cast<int64_t>(ring.size() / sizeof(PartEvent));
  if (header.magic != kPartMagic || header.num_action_kinds != kNumActionKinds ||
      header.num_places != num_places || num_places < 2 || header.num_begun < 0) {
    return std::nullopt;
  }
  // The oldest place of a full ring may be half written.
  const int64_t kept = std::min(header.num_begun, num_places - 1);
  part.events.resize(static_cast<size_t>(kept));
  for (int64_t i = 0; i < kept; ++i) {
    const int64_t place = (header.num_begun - kept + i) % num_places;
    std::memcpy(&part.events[static_cast<size_t>(i)],
                &ring[static_cast<size_t>(place) * sizeof(PartEvent)], sizeof(PartEvent));
    const PartEvent& event = part.events[static_cast<size_t>(i)];
    if (event.kind >= kNumActionKinds || event.event_class >= kNumEventClasses) return std::nullopt;
  }
  return part;
}

TimelineEvent event_of(int32_t rank, const PartEvent& event) {
  return {.rank = rank,
          .event_class = static_cast<EventClass>(event.event_class),
          .action = {static_cast<ActionKind>(event.kind), event.index, event.chunk},
          .begin = event.begin,
          .end = event.end,
          .step = event.step,
          .peer = event.peer,
          .bytes = event.bytes};
}

// The first of the last steps of which the ring has all events; the last one where it has all of
// none.
int32_t first_whole_step(const Part& part) {
  const auto kept = static_cast<int64_t>(part.events.size());
  if (kept == 0) return 0;
  const int32_t first = part.events.front().step;
  const int32_t last = part.events.back().step;
  const int32_t whole = part.header.num_begun == kept ? first : std::min(first + 1, last);
  return std::max(whole, last - std::max(part.header.num_steps, 1) + 1);
}

void move_events(Timeline& timeline, const std::vector<SimTime>& by_host) {
  for (TimelineEvent& event : timeline.events) {
    const SimTime offset =
        by_host[static_cast<size_t>(timeline.host_of_rank[static_cast<size_t>(event.rank)])];
    event.begin += offset;
    if (event.end != kNotOver) event.end += offset;
  }
}

// Minus the first begin of each host; the clocks of hosts begin anywhere.
std::vector<SimTime> starts(const Timeline& timeline) {
  std::vector<SimTime> starts(timeline.hosts.size(), 0);
  std::vector<bool> is_set(timeline.hosts.size(), false);
  for (const TimelineEvent& event : timeline.events) {
    const auto host = static_cast<size_t>(timeline.host_of_rank[static_cast<size_t>(event.rank)]);
    starts[host] = is_set[host] ? std::max(starts[host], -event.begin) : -event.begin;
    is_set[host] = true;
  }
  return starts;
}

// REQUIRES: verified.
Status align(Timeline& timeline) {
  move_events(timeline, starts(timeline));
  for (const TimelineEvent& event : timeline.events) {
    const SimTime last = event.end == kNotOver ? event.begin : event.end;
    if (last <= kMaxSpan && timeline.hosts.size() <= kMaxHosts) continue;
    return Error{fmt::format("rank {} has events {} ns apart on one of {} hosts, at most {} and {}",
                             event.rank, last, timeline.hosts.size(), kMaxSpan, kMaxHosts)};
  }
  TRIREME_TRY(std::vector<SimTime> offsets, clock_offsets(timeline));
  move_events(timeline, offsets);
  SimTime first = kMaxTime;
  for (const TimelineEvent& event : timeline.events) first = std::min(first, event.begin);
  move_events(timeline, std::vector<SimTime>(timeline.hosts.size(), -first));
  return Status();
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return Error{fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  return text;
}

// Ascending ranks.
std::vector<std::string> part_files(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const std::string prefix = fs::path(path).filename().string() + ".rank";
  std::map<int64_t, std::string> files;
  std::error_code code;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, code), end; !code && it != end;
       it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::string digits = name.substr(prefix.size());
    if (digits.empty() || digits.size() > 7 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    files[std::stoll(digits)] = it->path().string();
  }
  std::vector<std::string> paths;
  for (const auto& [rank, file] : files) paths.push_back(file);
  return paths;
}

}  // namespace

std::string part_path(const std::string& path, int32_t rank) {
  return fmt::format("{}.rank{}", path, rank);
}

Result<Timeline> join_parts(const std::vector<std::span<const std::byte>>& parts) {
  Timeline timeline;
  std::map<int32_t, Part> by_rank;
  for (const std::span<const std::byte> bytes : parts) {
    std::optional<Part> part = read_part(bytes);
    if (!part.has_value()) return Error{"a part of the timeline is damaged or of another version"};
    const PartHeader& header = part->header;
    if (by_rank.empty()) {
      timeline.builder = text_of(header.builder);
      timeline.num_stages = header.num_stages;
      timeline.num_replicas = header.num_replicas;
      timeline.num_chunks = header.num_chunks;
      TRIREME_TRY(verify_timeline(timeline));
    } else if (header.num_stages != timeline.num_stages ||
               header.num_replicas != timeline.num_replicas ||
               header.num_chunks != timeline.num_chunks ||
               text_of(header.builder) != timeline.builder) {
      return Error{fmt::format("the part of rank {} is of another run", header.rank)};
    }
    if (header.rank < 0 || header.rank >= timeline.num_ranks() ||
        !by_rank.emplace(header.rank, std::move(*part)).second) {
      return Error{fmt::format("there are two parts of rank {}, or no such rank", header.rank)};
    }
  }
  if (by_rank.empty()) return Error{"a timeline has at least one part"};
  timeline.host_of_rank.assign(static_cast<size_t>(timeline.num_ranks()), 0);
  std::vector<std::string> clocks;
  int32_t first_step = 0;
  for (const auto& [rank, part] : by_rank) {
    const std::string clock = text_of(part.header.clock);
    auto found = std::ranges::find(clocks, clock);
    if (found == clocks.end()) {
      found = clocks.insert(found, clock);
      timeline.hosts.push_back(text_of(part.header.host));
    }
    timeline.host_of_rank[static_cast<size_t>(rank)] = static_cast<int32_t>(found - clocks.begin());
    timeline.event_cost = std::max(timeline.event_cost, part.header.event_cost);
    first_step = std::max(first_step, first_whole_step(part));
  }
  for (const auto& [rank, part] : by_rank) {
    timeline.dropped_events += part.header.num_begun - static_cast<int64_t>(part.events.size());
    for (const PartEvent& event : part.events) {
      if (event.step < first_step) {
        ++timeline.dropped_events;
      } else {
        timeline.events.push_back(event_of(rank, event));
      }
    }
  }
  TRIREME_TRY(verify_timeline(timeline));
  TRIREME_TRY(align(timeline));
  return timeline;
}

Result<Timeline> join_part_files(const std::string& path) {
  std::vector<std::string> contents;
  for (const std::string& file : part_files(path)) {
    TRIREME_TRY(std::string content, read_file(file));
    // An earlier run of more ranks may have left more.
    const std::optional<Part> first =
        contents.empty() ? std::nullopt : read_part(std::as_bytes(std::span(contents[0])));
    if (first.has_value() &&
        contents.size() >= static_cast<size_t>(first->header.num_stages) *
                               static_cast<size_t>(first->header.num_replicas)) {
      break;
    }
    contents.push_back(std::move(content));
  }
  if (contents.empty()) {
    return Error{fmt::format("there is no {}, and no part {} of a run that was killed", path,
                             part_path(path, 0))};
  }
  std::vector<std::span<const std::byte>> parts;
  parts.reserve(contents.size());
  for (const std::string& content : contents) parts.push_back(std::as_bytes(std::span(content)));
  Result<Timeline> timeline = join_parts(parts);
  if (timeline.ok()) return timeline;
  return while_doing(fmt::format("joining {} and its like", part_path(path, 0)), timeline.error());
}

void remove_part_files(const std::string& path) {
  std::error_code ignored;
  for (const std::string& file : part_files(path)) fs::remove(file, ignored);
}

Result<Timeline> read_timeline(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return join_part_files(path);
  if (fs::is_directory(path, ignored)) {
    return Error{fmt::format("{}: this is a folder, not a timeline", path)};
  }
  TRIREME_TRY(const std::string text, read_file(path));
  Result<Timeline> timeline = parse_timeline(text);
  if (timeline.ok()) return timeline;
  return while_doing(path, timeline.error());
}

Status write_timeline(const std::string& path, const Timeline& timeline) {
  const std::string temporary = path + ".new";
  std::ofstream file(temporary);
  file << to_text(timeline);
  file.close();
  std::error_code code;
  if (file) fs::rename(temporary, path, code);
  if (file && !code) return Status();
  const std::string why = code ? code.message() : std::strerror(errno);
  fs::remove(temporary, code);
  return Error{fmt::format("cannot write {}: {}", path, why)};
}

}  // namespace trireme
