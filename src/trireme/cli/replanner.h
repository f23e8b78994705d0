// Replanner: whether the links of a running training still are what its schedule was made for, and
// which schedule is better where they are not.
//
// Now and then the ranks tell each other what they have measured (RankMeasurement), so that all
// decide the same from the same numbers:
//
//   told --> a link is `drift` times faster or slower than expected, twice in a row
//        --> find_extra_warm_ups() in the simulator, with the passes and links as measured
//        --> other warm-ups, or the same: what is measured is expected from now on
//
// What is expected at first is what --cluster says, and without one what is measured the second
// time: the first time connections have yet to find their pace.
//
// How much is a drift: of shaped links on a quiet machine the same one has read within 6 %; where
// others overload the cores that have to serve it, it has read 1.6 times as slow for a while. So 2,
// where nobody says otherwise. Less also rarely moves the best number of warm-ups: one more hides
// latencies of up to (F+B)/2, so it changes where a message has become longer by about as much.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/transport.h"

namespace trireme {

// The links of a rank: what it sends to the next stage of its replica, to the previous one, and to
// its stage in the next replica; the last has the first after it.
enum class Way : uint8_t { kNextStage, kPreviousStage, kNextReplica };
inline constexpr size_t kNumWays = 3;
// -1: there is none.
[[nodiscard]] int32_t peer_of(const Plan& plan, int32_t rank, Way way);

// Plain numbers, which travel as they are; 0 where nothing is known.
struct RankMeasurement {
  double forward_s = 0;  // of a micro-batch
  double backward_s = 0;
  double update_s = 0;
  std::array<MeasuredLink, kNumWays> links = {};
};

// Of one rank to another.
struct RankLink {
  int32_t from = 0;
  int32_t to = 0;
  MeasuredLink speed;
};
// All that are known, by rank and way. REQUIRES of it: told by the ranks of the plan, or by none.
[[nodiscard]] std::vector<RankLink> measured_links(const Plan& plan,
                                                   std::span<const RankMeasurement> told);

class Replanner {
 public:
  // `setup` outlives it.
  explicit Replanner(const RunSetup& setup);

  // Of all ranks. Whether plan() is to be asked: a link has drifted. What was told is expected
  // then.
  [[nodiscard]] bool hear(std::span<const RankMeasurement> told);

  struct Change {
    std::vector<int32_t> extra_warm_ups;  // by hop
    int32_t least_look_ahead = 0;         // of the steps from the change on
    std::string why;                      // "rank 0 sends to rank 1 at 2.1MB/s instead of 8.4MB/s"
  };
  // After hear() has said so: the best extra warm-ups, which may be those that there are `now`.
  // Takes as long as some simulations of a step; on any thread, while nothing else is called.
  // Errors: what passes cost is not known; no run changes from one to the other.
  [[nodiscard]] Result<Change> plan(const std::vector<int32_t>& now) const;

 private:
  struct Drift {
    int32_t direction = 0;  // 1: faster, -1: slower
    int32_t times = 0;      // in a row
  };
  // What a link was measured at, and whether it has drifted.
  bool hear_link(size_t index, double bytes_per_s);
  [[nodiscard]] Result<Prediction> prediction() const;

  const RunSetup& setup_;
  std::vector<RankMeasurement> told_;  // the newest that is known of each
  std::vector<double> expected_;       // by rank and way; 0: not known
  std::vector<bool> was_measured_;     // the same
  std::vector<Drift> drifts_;          // the same
  std::string what_;                   // has drifted
};

// A line about the links as they were last measured, hop by hop, each the slowest of its replicas:
// "links as measured: stage 0 to 1 24.8MB/s, stage 1 to 0 25MB/s, replicas of stage 0 24.7MB/s".
// Empty where nothing is known.
[[nodiscard]] std::string links_text(const Plan& plan, std::span<const RankMeasurement> told);

}  // namespace trireme
