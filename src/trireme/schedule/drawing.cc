#include "trireme/schedule/drawing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/schedule/peers.h"

namespace trireme {
namespace {

constexpr size_t kForwardCells = 1;
constexpr size_t kBackwardCells = 2;

// Fills the lanes by running the lists in rounds until all have ended.
class Drawer {
 public:
  using Lane = std::vector<std::string>;

  explicit Drawer(const Schedule& schedule)
      : schedule_(schedule), places_(schedule.ranks.size(), 0), lanes_(schedule.ranks.size()) {}

  std::vector<Lane> run() {
    while (true) {
      bool is_done = true;
      bool has_moved = false;
      for (size_t rank = 0; rank < lanes_.size(); ++rank) {
        while (places_[rank] < schedule_.ranks[rank].size() && advance(rank)) has_moved = true;
        is_done = is_done && places_[rank] == schedule_.ranks[rank].size();
      }
      if (is_done) return std::move(lanes_);
      TRIREME_CHECK(has_moved, "a schedule that deadlocks cannot be drawn");
    }
  }

 private:
  // Runs the rank's next action. False when it waits for a send that is not yet drawn.
  bool advance(size_t rank) {
    const Action& action = schedule_.ranks[rank][places_[rank]];
    Lane& lane = lanes_[rank];
    const auto number = static_cast<int32_t>(rank);
    const std::optional<Counterpart> other = counterpart(schedule_, number, action);
    if (is_send(action.kind)) {
      sent_at_[{number, action.kind, action.index, action.chunk}] = lane.size();
    } else if (other) {
      const Action& send = other->action;
      const auto found = sent_at_.find({other->rank, send.kind, send.index, send.chunk});
      if (found == sent_at_.end()) return false;
      lane.resize(std::max(lane.size(), found->second), ".");
    } else if (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward) {
      const size_t num_cells = action.kind == ActionKind::kForward ? kForwardCells : kBackwardCells;
      lane.push_back(to_text(action));
      lane.resize(lane.size() + num_cells - 1, "--");
    }
    ++places_[rank];
    return true;
  }

  const Schedule& schedule_;
  std::vector<size_t> places_;  // by rank: the next action
  std::vector<Lane> lanes_;     // by rank: the cells so far
  // The cell at which a send was issued: by sender, kind, index and chunk.
  std::map<std::tuple<int32_t, ActionKind, int32_t, int32_t>, size_t> sent_at_;
};

}  // namespace

std::string draw(const Schedule& schedule) {
  const std::vector<Drawer::Lane> lanes = Drawer(schedule).run();
  size_t width = 0;
  for (const Drawer::Lane& lane : lanes) {
    for (const std::string& cell : lane) width = std::max(width, cell.size() + 1);
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
