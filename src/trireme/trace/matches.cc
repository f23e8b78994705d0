#include "trireme/trace/matches.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace trireme {
namespace {

using enum ActionKind;

bool is_gradient(ActionKind kind) { return kind == kSendGradient || kind == kReceiveGradient; }

// What both sides of a transfer have in common.
using TransferKey = std::tuple<int32_t, int32_t, int32_t, bool, int32_t>;
// Step, kind, index, and which of the communicators of that kind.
using CollectiveKey = std::tuple<int32_t, ActionKind, int32_t, int32_t>;

int32_t communicator_of(const Timeline& timeline, const TimelineEvent& event) {
  if (event.action.kind == kAllReduce || event.action.kind == kRowExchange) {
    return event.rank % timeline.num_stages;
  }
  if (event.action.kind == kTiedReduce) return event.rank / timeline.num_stages;
  return 0;
}

class Matcher {
 public:
  explicit Matcher(const Timeline& timeline) : timeline_(timeline) {}

  Matches run() {
    for (size_t i = 0; i < timeline_.events.size(); ++i) add(static_cast<int64_t>(i));
    Matches matches;
    for (auto& [key, sides] : transfers_) {
      size_t count = 0;
      for (std::vector<int64_t>& side : sides) {
        std::ranges::stable_sort(side, {}, [&](int64_t i) { return event(i).action.chunk; });
        count = std::max(count, side.size());
      }
      const auto at = [&sides = sides](size_t side, size_t n) {
        return n < sides[side].size() ? sides[side][n] : -1;
      };
      for (size_t n = 0; n < count; ++n) {
        matches.transfers.push_back({.sender = std::get<1>(key),
                                     .receiver = std::get<2>(key),
                                     .send = at(kSends, n),
                                     .receive = at(kReceives, n),
                                     .wait = at(kWaits, n)});
      }
    }
    for (auto& [key, collective] : collectives_) {
      matches.collectives.push_back(std::move(collective));
    }
    return matches;
  }

 private:
  enum Side : uint8_t { kSends, kReceives, kWaits };

  [[nodiscard]] const TimelineEvent& event(int64_t i) const {
    return timeline_.events[static_cast<size_t>(i)];
  }

  void add(int64_t i) {
    const TimelineEvent& each = event(i);
    const bool is_wait = each.event_class == EventClass::kWait;
    if (!is_wait && is_on_compute_lane(each.event_class)) return;
    if (is_collective(each.action.kind)) {
      CollectiveMatch& collective = collectives_[{each.step, each.action.kind, each.action.index,
                                                  communicator_of(timeline_, each)}];
      (is_wait ? collective.waits : collective.members).push_back(i);
      return;
    }
    // The wait for a send is its rank's own affair.
    if (each.peer < 0 || (is_wait && is_send(each.action.kind))) return;
    const bool sends = is_send(each.action.kind);
    const TransferKey key{each.step, sends ? each.rank : each.peer, sends ? each.peer : each.rank,
                          is_gradient(each.action.kind), each.action.index};
    transfers_[key][is_wait ? kWaits : sends ? kSends : kReceives].push_back(i);
  }

  const Timeline& timeline_;
  std::map<TransferKey, std::array<std::vector<int64_t>, 3>> transfers_;
  std::map<CollectiveKey, CollectiveMatch> collectives_;
};

}  // namespace

Matches match_events(const Timeline& timeline) { return Matcher(timeline).run(); }

}  // namespace trireme
