// The deadlock rule: every rank runs its list under the harshest transport that is legal.
//
// A send blocks until its receive is posted; a receive is posted once its rank has reached the
// receive that stands `look_ahead` receives before it (so 0 means: when it is reached itself), and
// waits until its send is issued; an action waits until all members have issued the collectives
// that it needs. A real transport blocks less, and blocking less cannot make ranks that never
// choose wait for each other for ever. At its end a rank has issued all that others may need, so
// what it waits for there closes no circle.
#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

// What a stuck rank needs: `rank` to reach the action at `position`.
struct Need {
  int32_t rank = 0;
  int32_t position = 0;
};

class Simulation {
 public:
  // `steps`: those that the schedule is, after each other.
  Simulation(const ScheduleIndex& index, std::span<const Schedule> steps) : index_(index) {
    const auto num_ranks = static_cast<size_t>(index.num_ranks());
    places_.resize(num_ranks, 0);
    posting_places_.resize(num_ranks);
    for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
      find_posting_places(rank, steps);
      std::vector<int32_t>& collectives = collectives_.emplace_back();
      const std::vector<Action>& actions = index.actions(rank);
      for (size_t position = 0; position < actions.size(); ++position) {
        if (!is_collective(actions[position].kind)) continue;
        collectives.push_back(static_cast<int32_t>(position));
      }
    }
  }

  // Nothing when every rank reaches its end, else the first rank that does not.
  std::optional<int32_t> run() {
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (int32_t rank = 0; rank < index_.num_ranks(); ++rank) {
        while (!is_done(rank) && !need(rank)) {
          ++places_[static_cast<size_t>(rank)];
          has_moved = true;
        }
      }
    }
    for (int32_t rank = 0; rank < index_.num_ranks(); ++rank) {
      if (!is_done(rank)) return rank;
    }
    return std::nullopt;
  }

  // Follows who waits for whom from a stuck rank until a rank comes again, and tells the circle.
  [[nodiscard]] std::string report(int32_t rank) const {
    std::vector<int32_t> chain;
    while (std::ranges::find(chain, rank) == chain.end()) {
      chain.push_back(rank);
      rank = need(rank).value_or(Need{rank}).rank;
    }
    std::vector<std::string> waits;
    for (auto it = std::ranges::find(chain, rank); it != chain.end(); ++it) {
      const Need what = need(*it).value_or(Need());
      waits.push_back(fmt::format("rank {} waits at {} until rank {} reaches {}", *it,
                                  to_text(action_at(*it, place(*it))), what.rank,
                                  to_text(action_at(what.rank, what.position))));
    }
    return fmt::format("deadlock at look-ahead {}: {}", index_.schedule().look_ahead,
                       fmt::join(waits, ", "));
  }

 private:
  [[nodiscard]] int32_t place(int32_t rank) const { return places_[static_cast<size_t>(rank)]; }
  [[nodiscard]] bool is_done(int32_t rank) const {
    return place(rank) == static_cast<int32_t>(index_.actions(rank).size());
  }
  [[nodiscard]] const Action& action_at(int32_t rank, int32_t position) const {
    return index_.actions(rank)[static_cast<size_t>(position)];
  }

  // For each receive, the position that its rank must reach for it to be posted: where a step
  // begins, or an earlier receive.
  void find_posting_places(int32_t rank, std::span<const Schedule> steps) {
    const std::vector<Action>& actions = index_.actions(rank);
    std::vector<int32_t>& posting = posting_places_[static_cast<size_t>(rank)];
    posting.resize(actions.size(), 0);
    std::vector<size_t> receives;
    for (size_t position = 0; position < actions.size(); ++position) {
      if (is_receive(actions[position].kind)) receives.push_back(position);
    }
    size_t num_posted = 0;
    size_t num_reached = 0;
    size_t position = 0;
    const auto post = [&](int32_t look_ahead) {
      const size_t end = std::min(num_reached + static_cast<size_t>(look_ahead), receives.size());
      for (; num_posted < end; ++num_posted) {
        posting[receives[num_posted]] = static_cast<int32_t>(position);
      }
    };
    for (const Schedule& step : steps) {
      post(step.look_ahead);
      for (size_t left = step.ranks[static_cast<size_t>(rank)].size(); left > 0; --left) {
        if (is_receive(actions[position].kind)) post(step.look_ahead + 1);
        if (is_receive(actions[position].kind)) ++num_reached;
        ++position;
      }
    }
  }

  // Nothing when the rank's next action can complete.
  [[nodiscard]] std::optional<Need> need(int32_t rank) const {
    const Action& action = action_at(rank, place(rank));
    if (is_collective(action.kind) || action.kind == ActionKind::kUpdate) {
      return need_of_collectives(rank, action);
    }
    if (const auto other = counterpart(index_.schedule(), rank, action)) {
      int32_t position = index_.position(other->rank, other->action);
      if (position < 0) return std::nullopt;  // a neighbour's: it has sent, or will receive
      if (is_send(action.kind)) {
        position = posting_places_[static_cast<size_t>(other->rank)][static_cast<size_t>(position)];
      }
      if (place(other->rank) < position) return Need{other->rank, position};
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Need> need_of_collectives(int32_t rank, const Action& action) const {
    for (const int32_t issued : collectives_[static_cast<size_t>(rank)]) {
      if (issued >= place(rank)) break;
      const Action& collective = action_at(rank, issued);
      if (!waits_for(action, collective)) continue;
      for (int32_t member : members(index_.schedule(), rank, collective)) {
        const int32_t position = index_.position(member, collective);
        if (place(member) <= position) return Need{member, position};
      }
    }
    return std::nullopt;
  }

  const ScheduleIndex& index_;
  std::vector<int32_t> places_;  // by rank: the position it stands at
  std::vector<std::vector<int32_t>> posting_places_;
  std::vector<std::vector<int32_t>> collectives_;  // by rank: their positions
};

}  // namespace

Status check_no_deadlock(const ScheduleIndex& index) {
  return check_no_deadlock(index, std::span(&index.schedule(), 1));
}

Status check_no_deadlock(const ScheduleIndex& run, std::span<const Schedule> steps) {
  Simulation simulation(run, steps);
  const std::optional<int32_t> stuck = simulation.run();
  if (!stuck) return Status();
  return Error{simulation.report(*stuck)};
}

}  // namespace trireme
