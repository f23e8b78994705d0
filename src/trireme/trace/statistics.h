// What a timeline says about a run: where the time of each rank went, what its links did, and
// which chain of events took as long as all of it.
//
// The wall time lasts from the first begin to the last end of the timeline; what was not over when
// the recording ended lasts to that end. The compute lane of a rank is partitioned into slices,
// which add up to the wall time exactly:
//
//   compute    forwards and backwards                recompute   forwards that are repeated
//   optimizer  updates                               input       waiting for the data of a step
//   evaluation all of it, waits included: it is no part of a step
//   peer       waiting for a rank that is not yet so far as to send, or to join a collective
//   transfer   waiting for bytes that are under way
//   idle       the rest
//
// A wait for a receive is for the peer until the matching send is posted, then for the transfer;
// for a collective, until its last member has come. Where the match is missing, all of it is for
// the peer. A wait for one's own sends is for the transfer.
//
// A transfer is exposed while its receiver waits for it, and hidden for the rest of its time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/trace/timeline.h"

namespace trireme {

enum class Slice : uint8_t {
  kCompute,
  kRecompute,
  kOptimizer,
  kInput,
  kEvaluation,
  kPeer,
  kTransfer,
  kIdle,
};
inline constexpr size_t kNumSlices = 8;
inline constexpr std::array<std::string_view, kNumSlices> kSliceNames = {
    "compute", "recompute", "optimizer", "input", "evaluation", "peer", "transfer", "idle"};

struct RankStatistics {
  std::array<SimTime, kNumSlices> slices = {};  // of Slice; their sum is the wall time
};

struct LinkStatistics {
  std::string name;  // "0>1", or of a communicator "AR stage 0", "TR replica 1", "SC"
  int64_t num_transfers = 0;
  int64_t bytes = 0;   // collectives: of one member
  SimTime busy = 0;    // the time in which at least one transfer is under way
  SimTime hidden = 0;  // sums over transfers; of a collective the mean of its members
  SimTime exposed = 0;
};

// A piece of the critical path: what had to end before the next one could go on.
struct PathPiece {
  int32_t rank = 0;
  Slice slice = Slice::kIdle;  // kTransfer: on the way from `rank` to `peer`, or a collective
  Action action;
  int32_t step = 0;
  int32_t peer = -1;
  SimTime begin = 0;
  SimTime end = 0;
};

struct TimelineStatistics {
  SimTime begin = 0;
  SimTime wall = 0;
  int32_t first_step = 0;
  int32_t num_steps = 0;
  SimTime step_time = 0;  // the mean: wall without the mean evaluation of a rank, / num_steps
  std::vector<RankStatistics> ranks;
  std::vector<LinkStatistics> links;     // by name; those without transfers are left out
  std::vector<PathPiece> critical_path;  // in the order of time, end to begin, sum is the wall
  // The share of the time of all ranks in which they wait or are idle, 0 to 1; evaluations aside.
  double bubble_rate = 0;
  // The share of a step that recording its events takes, on the rank that records most.
  double recording_share = 0;
};

// REQUIRES: verified.
[[nodiscard]] TimelineStatistics statistics_of(const Timeline& timeline);

// What each rank was doing when the recording ended, for people: "rank 1 waited for RA3 of rank 0
// since 1.2 s". Empty for a run that ended by itself.
[[nodiscard]] std::vector<std::string> last_doings(const Timeline& timeline);

}  // namespace trireme
