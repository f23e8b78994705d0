// `trirace`: after TriRace (Li et al., TriRace: 3D Communication Scheduling for Hybrid Parallel
// Training, TPDS 2024), whose priorities, sizes and model of the network are not published. What is
// known: it schedules all-reduces, the sparse exchange of embedding rows and messages between
// stages by what depends on them, over a runtime that knows what is on the links. This is our own
// design for that:
//
//   +allreduce  by deadline: what the forward needs first goes first, across steps. Gradients are
//               cut into chunks, so that a message or something more urgent waits for no more than
//               a chunk or two. The next chunk starts up while one travels, and several where they
//               are small; what takes less on the link than a start-up is joined to what comes
//               next. So start-ups cost next to nothing.
//   +sparse     rows of embedding tables are exchanged instead of tables: those that the next batch
//               reads by their deadline, the others behind all that is needed sooner
//   +p2p        a sender's link serves messages between stages before anything else
//   +runtime    an arbiter holds gradients while a message is on any of their links (arbiter.h)
//
// The last three are switches of the row (policies.h). Unless its size is asked for, a chunk takes
// four start-ups on the link, and what it costs whatever its size is 3 % of it at most.

#include <algorithm>
#include <cmath>

#include "trireme/comm/policies/makers.h"
#include "trireme/comm/policies/pieces.h"

namespace trireme {
namespace {

constexpr int32_t kInFlight = 2;
constexpr double kStartupsOfAChunk = 4;
constexpr double kOverheadsOfAChunk = 32;
constexpr double kLeastChunk = 256 << 10;

int64_t chunk_bytes_for(const Route& route) {
  const UnitCost fixed = unit_cost(Operation::kAllReduce, 0, route);
  return std::llround(std::max({kLeastChunk, kStartupsOfAChunk * bytes_in(fixed.startup, route),
                                kOverheadsOfAChunk * bytes_in(fixed.on_link, route)}));
}

// Pieces of the same size, none larger than a chunk.
int64_t even_piece(int64_t bytes, int64_t chunk_bytes) {
  const int64_t num_pieces = (bytes + chunk_bytes - 1) / chunk_bytes;
  return (bytes + num_pieces - 1) / num_pieces;
}

class TriRace final : public Policy {
 public:
  TriRace(const StageProblem& problem, const PolicyOptions& options)
      : problem_(problem),
        chunk_bytes_(options.chunk_bytes > 0 ? options.chunk_bytes
                                             : chunk_bytes_for(problem.route)) {}

  std::vector<Unit> on_ready(const GradientRef& ready) override {
    const GradientView& gradient = problem_.gradients[static_cast<size_t>(ready.gradient)];
    std::vector<Unit> units = cut(problem_, ready, even_piece(gradient.bytes, chunk_bytes_), 0);
    for (Unit& unit : units) {
      unit.priority = gradient.deadline + ready.iteration * problem_.step;
    }
    return units;
  }

  std::vector<UnitKey> pick(const CommState& state) override {
    if (state.num_in_flight >= kInFlight && state.bytes_in_flight >= chunk_bytes_) return {};
    std::vector<UnitKey> keys;
    const Unit& first = state.waiting.begin()->second;
    int64_t bytes = 0;
    for (const auto& [key, unit] : state.waiting) {
      if (!keys.empty() && !joins(unit, first, bytes)) break;
      keys.push_back(key);
      bytes += bytes_of(unit);
    }
    return keys;
  }

 private:
  // Nothing waits for what is needed a step later than itself.
  [[nodiscard]] bool joins(const Unit& unit, const Unit& first, int64_t bytes) const {
    return unit.operation == first.operation && unit.iteration == first.iteration &&
           unit.priority - first.priority < problem_.step &&
           static_cast<double>(bytes) * kStartupsOfAChunk < static_cast<double>(chunk_bytes_) &&
           bytes + bytes_of(unit) <= chunk_bytes_;
  }

  StageProblem problem_;
  int64_t chunk_bytes_;
};

}  // namespace

std::unique_ptr<Policy> make_trirace(const StageProblem& problem, const PolicyOptions& options) {
  return std::make_unique<TriRace>(problem, options);
}

}  // namespace trireme
