#include "trireme/trace/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "trireme/trace/matches.h"

namespace trireme {
namespace {

Slice slice_of(EventClass event_class) {
  switch (event_class) {
    case EventClass::kRecompute:
      return Slice::kRecompute;
    case EventClass::kUpdate:
      return Slice::kOptimizer;
    case EventClass::kInput:
      return Slice::kInput;
    case EventClass::kEvaluation:
      return Slice::kEvaluation;
    default:
      return Slice::kCompute;
  }
}

// What is there within this time was there before: asking takes as long.
constexpr SimTime kSoon = 20'000;

// Of numbers that are not negative: a file may hold greater ones than can be added.
int64_t capped_sum(int64_t a, int64_t b) {
  return a > std::numeric_limits<int64_t>::max() - b ? std::numeric_limits<int64_t>::max() : a + b;
}

// An event of a compute lane, cut so that none overlaps the one before it.
struct LaneEvent {
  int64_t event = 0;
  SimTime begin = 0;
  SimTime end = 0;
};

// Until when a wait is for a peer, and for whom.
struct Cause {
  SimTime until = 0;
  int32_t rank = -1;  // that came last; -1: not known
};

class Reader {
 public:
  explicit Reader(const Timeline& timeline)
      : timeline_(timeline), lanes_(static_cast<size_t>(timeline.num_ranks())) {}

  TimelineStatistics run() {
    find_bounds();
    fill_lanes();
    const Matches matches = match_events(timeline_);
    find_causes(matches);
    fill_ranks();
    fill_links(matches);
    fill_path();
    return std::move(result_);
  }

 private:
  [[nodiscard]] const TimelineEvent& event(int64_t i) const {
    return timeline_.events[static_cast<size_t>(i)];
  }
  [[nodiscard]] SimTime end_of(const TimelineEvent& each) const {
    return each.end == kNotOver ? last_ : each.end;
  }

  void find_bounds() {
    if (timeline_.events.empty()) return;
    SimTime first = kMaxTime;
    std::set<int32_t> steps;
    std::map<int32_t, int64_t> num_events;
    for (const TimelineEvent& each : timeline_.events) {
      first = std::min(first, each.begin);
      last_ = std::max(last_, each.end == kNotOver ? each.begin : each.end);
      steps.insert(each.step);
      ++num_events[each.rank];
    }
    result_.begin = first;
    result_.wall = last_ - first;
    result_.first_step = *steps.begin();
    result_.num_steps = static_cast<int32_t>(steps.size());
    int64_t most = 0;
    for (const auto& [rank, count] : num_events) most = std::max(most, count);
    if (result_.wall > 0) {
      result_.recording_share = static_cast<double>(most) *
                                static_cast<double>(timeline_.event_cost) /
                                static_cast<double>(result_.wall);
    }
  }

  void fill_lanes() {
    for (size_t i = 0; i < timeline_.events.size(); ++i) {
      const TimelineEvent& each = timeline_.events[i];
      if (!is_on_compute_lane(each.event_class)) continue;
      lanes_[static_cast<size_t>(each.rank)].push_back(
          {static_cast<int64_t>(i), each.begin, end_of(each)});
    }
    for (std::vector<LaneEvent>& lane : lanes_) {
      std::ranges::stable_sort(lane, {}, &LaneEvent::begin);
      SimTime reached = result_.begin;
      for (LaneEvent& each : lane) {
        each.begin = std::max(each.begin, reached);
        each.end = std::max(each.end, each.begin);
        reached = each.end;
      }
    }
  }

  void find_causes(const Matches& matches) {
    for (const TransferMatch& match : matches.transfers) {
      if (match.wait < 0 || match.send < 0) continue;
      causes_[match.wait] = {event(match.send).begin, match.sender};
    }
    for (const CollectiveMatch& match : matches.collectives) {
      std::optional<Cause> last;
      for (const int64_t member : match.members) {
        if (!last || event(member).begin > last->until) {
          last = {event(member).begin, event(member).rank};
        }
      }
      if (!last) continue;
      for (const int64_t wait : match.waits) causes_[wait] = *last;
    }
  }

  // Where the time for the peer ends and that for the transfer begins, within the event.
  [[nodiscard]] SimTime border(const LaneEvent& each) const {
    if (is_send(event(each.event).action.kind)) return each.begin;
    const auto cause = causes_.find(each.event);
    if (cause == causes_.end()) return each.end;
    return std::clamp(cause->second.until, each.begin, each.end);
  }

  void fill_ranks() {
    double lost = 0;
    double evaluation = 0;
    for (const std::vector<LaneEvent>& lane : lanes_) {
      RankStatistics& rank = result_.ranks.emplace_back();
      const auto at = [&rank](Slice slice) -> SimTime& {
        return rank.slices[static_cast<size_t>(slice)];
      };
      for (const LaneEvent& each : lane) {
        const EventClass event_class = event(each.event).event_class;
        if (event_class == EventClass::kWait) {
          at(Slice::kPeer) += border(each) - each.begin;
          at(Slice::kTransfer) += each.end - border(each);
        } else {
          at(slice_of(event_class)) += each.end - each.begin;
        }
      }
      at(Slice::kIdle) =
          result_.wall - std::accumulate(rank.slices.begin(), rank.slices.end(), SimTime{0});
      lost += static_cast<double>(at(Slice::kPeer) + at(Slice::kTransfer) + at(Slice::kIdle));
      evaluation += static_cast<double>(at(Slice::kEvaluation));
    }
    const auto num_ranks = static_cast<double>(lanes_.size());
    const SimTime of_steps = result_.wall - std::llround(evaluation / num_ranks);
    if (of_steps <= 0) return;
    result_.step_time = of_steps / result_.num_steps;
    result_.bubble_rate = lost / static_cast<double>(of_steps) / num_ranks;
  }

  struct Use {
    SimTime begin;
    SimTime end;
  };

  void add_use(const std::string& name, Use use, int64_t bytes, SimTime exposed) {
    const auto [found, is_new] = link_of_name_.try_emplace(name, result_.links.size());
    if (is_new) {
      result_.links.push_back({.name = name});
      uses_.emplace_back();
    }
    LinkStatistics& link = result_.links[found->second];
    ++link.num_transfers;
    link.bytes = capped_sum(link.bytes, bytes);
    // A rank waits once for what it takes part in, but a file may say otherwise.
    exposed = std::min(exposed, use.end - use.begin);
    link.exposed = capped_sum(link.exposed, exposed);
    link.hidden = capped_sum(link.hidden, use.end - use.begin - exposed);
    uses_[found->second].push_back(use);
  }

  // The part of a wait in which the transfer is under way.
  [[nodiscard]] SimTime overlap(int64_t wait, Use use) const {
    if (wait < 0) return 0;
    const SimTime begin = std::max(event(wait).begin, use.begin);
    return std::max<SimTime>(0, std::min(end_of(event(wait)), use.end) - begin);
  }

  void fill_links(const Matches& matches) {
    for (const TransferMatch& match : matches.transfers) {
      const int64_t first = match.send >= 0 ? match.send : match.receive;
      const int64_t last = match.receive >= 0 ? match.receive : match.send;
      if (first < 0) continue;
      SimTime begin = event(first).begin;
      const SimTime end = end_of(event(last));
      if (match.receive >= 0) begin = std::max(begin, event(match.receive).begin);
      const Use use{std::min(begin, end), end};
      add_use(fmt::format("{}>{}", match.sender, match.receiver), use, event(first).bytes,
              overlap(match.wait, use));
    }
    for (const CollectiveMatch& match : matches.collectives) {
      if (match.members.empty()) continue;
      Use use{0, kNotOver};
      for (const int64_t member : match.members) {
        use.begin = std::max(use.begin, event(member).begin);
        use.end = std::min(use.end, end_of(event(member)));
      }
      use.end = std::max(use.begin, use.end);
      SimTime exposed = 0;
      for (const int64_t wait : match.waits) exposed = capped_sum(exposed, overlap(wait, use));
      const TimelineEvent& one = event(match.members[0]);
      add_use(communicator_name(one), use, one.bytes,
              exposed / static_cast<SimTime>(match.members.size()));
    }
    for (size_t i = 0; i < result_.links.size(); ++i) {
      std::ranges::sort(uses_[i], {}, &Use::begin);
      SimTime reached = result_.begin;
      for (const Use& use : uses_[i]) {
        result_.links[i].busy += std::max<SimTime>(0, use.end - std::max(use.begin, reached));
        reached = std::max(reached, use.end);
      }
    }
    std::ranges::sort(result_.links, {}, &LinkStatistics::name);
  }

  [[nodiscard]] std::string communicator_name(const TimelineEvent& each) const {
    if (each.action.kind == ActionKind::kAllReduce) {
      return fmt::format("AR stage {}", each.rank % timeline_.num_stages);
    }
    if (each.action.kind == ActionKind::kRowExchange) {
      return fmt::format("SX stage {}", each.rank % timeline_.num_stages);
    }
    if (each.action.kind == ActionKind::kTiedReduce) {
      return fmt::format("TR replica {}", each.rank / timeline_.num_stages);
    }
    return "SC";
  }

  // From the last end backwards: what ended last on the lane is what the next one waited for; a
  // wait leads to the rank that came last, at the time at which it came.
  void fill_path() {
    size_t rank = 0;
    SimTime time = result_.begin;
    std::vector<int64_t> places;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      places.push_back(static_cast<int64_t>(lanes_[i].size()) - 1);
      if (lanes_[i].empty() || lanes_[i].back().end <= time) continue;
      rank = i;
      time = lanes_[i].back().end;
    }
    const auto add = [&](PathPiece piece, SimTime begin) {
      if (begin < time) {
        piece.begin = begin;
        piece.end = time;
        result_.critical_path.push_back(piece);
      }
      time = begin;
    };
    while (time > result_.begin) {
      int64_t& place = places[rank];
      const std::vector<LaneEvent>& lane = lanes_[rank];
      while (place >= 0 && lane[static_cast<size_t>(place)].begin >= time) --place;
      PathPiece piece{.rank = static_cast<int32_t>(rank)};
      if (place < 0) {
        add(piece, result_.begin);
        break;
      }
      const LaneEvent& each = lane[static_cast<size_t>(place)];
      if (each.end < time) add(piece, each.end);
      if (time == each.begin) continue;
      const TimelineEvent& found = event(each.event);
      piece.action = found.action;
      piece.step = found.step;
      if (found.event_class != EventClass::kWait) {
        piece.slice = slice_of(found.event_class);
        add(piece, each.begin);
        continue;
      }
      const auto cause = causes_.find(each.event);
      const bool is_late =
          cause != causes_.end() && cause->second.until < time && each.end - each.begin > kSoon;
      piece.slice = border(each) < each.end ? Slice::kTransfer : Slice::kPeer;
      piece.peer = found.peer;
      if (!is_late) {
        add(piece, each.begin);
        continue;
      }
      piece.rank = cause->second.rank;
      piece.peer = static_cast<int32_t>(rank);
      add(piece, std::max(cause->second.until, result_.begin));
      rank = static_cast<size_t>(cause->second.rank);
    }
    std::ranges::reverse(result_.critical_path);
  }

  const Timeline& timeline_;
  TimelineStatistics result_;
  SimTime last_ = 0;
  std::vector<std::vector<LaneEvent>> lanes_;  // by rank, ascending
  std::map<int64_t, Cause> causes_;            // by wait
  std::map<std::string, size_t> link_of_name_;
  std::vector<std::vector<Use>> uses_;  // by link
};

}  // namespace

TimelineStatistics statistics_of(const Timeline& timeline) { return Reader(timeline).run(); }

namespace {

std::string doing_text(const TimelineEvent& event) {
  if (event.event_class == EventClass::kEvaluation) return "evaluating";
  const std::string_view word = event.event_class == EventClass::kWait    ? "waiting for"
                                : event.event_class == EventClass::kInput ? "fetching the data of"
                                                                          : "computing";
  return fmt::format("{} {}", word, to_text(event.action));
}

}  // namespace

std::vector<std::string> last_doings(const Timeline& timeline) {
  SimTime last = 0;
  std::map<int32_t, const TimelineEvent*> open;
  std::map<int32_t, const TimelineEvent*> ended;
  for (const TimelineEvent& each : timeline.events) {
    last = std::max(last, each.end == kNotOver ? each.begin : each.end);
    if (!is_on_compute_lane(each.event_class)) continue;
    const TimelineEvent*& kept = (each.end == kNotOver ? open : ended)[each.rank];
    if (kept == nullptr || kept->begin <= each.begin) kept = &each;
  }
  if (open.empty()) return {};
  std::vector<std::string> lines;
  for (int32_t rank = 0; rank < timeline.num_ranks(); ++rank) {
    if (const auto found = open.find(rank); found != open.end()) {
      const TimelineEvent& each = *found->second;
      const std::string whom = each.peer < 0 ? "" : fmt::format(" of rank {}", each.peer);
      lines.push_back(fmt::format("rank {} was in step {}: {}{}, for {:.3f} ms", rank, each.step,
                                  doing_text(each), whom,
                                  static_cast<double>(last - each.begin) * 1e-6));
    } else if (const auto done = ended.find(rank); done != ended.end()) {
      lines.push_back(fmt::format("rank {} was in step {}: after {}", rank, done->second->step,
                                  to_text(done->second->action)));
    }
  }
  return lines;
}

}  // namespace trireme
