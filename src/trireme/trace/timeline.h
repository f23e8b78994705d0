// Timeline: what every rank did and when, in one form for what was simulated and what was measured.
//
// An event is an interval on a lane. Each rank has one compute lane, on which events do not
// overlap: its computing, and the waits in between. Transfers and collectives last from their
// posting to their completion beside it, on the lanes of links and communicators, where they may
// overlap. Times are nanoseconds from the begin of the timeline; in the clock of rank 0's host, if
// it was measured.
//
//   text                    class                           lane
//   F3.1 B3.1 U             what computes: by its action    compute
//   input F0                waiting for the data of a step  compute
//   evaluation F0           evaluating after a step         compute
//   wait RA3                waiting for what others do      compute
//   SA3 RA3 SG3 RG3         transfer                        link from the sender to the receiver
//   AR2 TR0 SC1             collective                      communicator
//
// An evaluation is one event from its begin to its end, of the step that it follows: the passes and
// waits in it are not told apart. A wait names in `action` what it is for (of sends: until the
// oldest is gone) and in `peer` for whom; collectives are waited for together, and have no peer. A
// transfer is an event of its sender, as the send, and of its receiver, as the receive; that of the
// receiver ends when the bytes are known to be there. A timeline may have either or both.
//
// The text form is a header line and one line an event, in any order:
//
//   timeline measured 1f1b stages=2 replicas=1 hosts=a,b host-of-rank=0,1 peak-bytes=4096,2048
//   rank 0 F3.1 1200 3400 step=12
//   rank 0 wait RG0 3400 5200 step=12 peer=1
//   rank 0 RG0 1200 5200 step=12 peer=1 bytes=512
//   rank 1 B0 4100 - step=12
//
//   text    = header { event }                 words are parted by one space; each line ends in \n
//   header  = "timeline" ( "simulated" | "measured" ) BUILDER "stages=" N { field }
//   field   = "replicas=" N | "chunks=" N      1 when absent
//           | "hosts=" NAME { "," NAME }       with
//           | "host-of-rank=" N { "," N }      one number a rank; both absent: one host
//           | "peak-bytes=" N { "," N }        one number a rank; absent: not known
//           | "dropped=" N                     events of earlier steps that are left out; 0 when
//           absent | "event-cost=" N                  nanoseconds that recording an event takes
//   event   = "rank" N [ "wait" | "input" | "evaluation" ] ACTION BEGIN END { attribute }
//   attribute = "step=" N | "peer=" N | "bytes=" N      0, none and 0 when absent
//
// END is "-" for what was not over when the recording ended: a killed run says so what each rank
// was doing. A file that is cut off anywhere after its header is read up to its last whole line.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/base/sim_time.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

enum class EventClass : uint8_t {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kRecompute,
  kUpdate,
  kInput,
  kEvaluation,
  kWait,
  kTransfer,
  kCollective,
};
inline constexpr size_t kNumEventClasses = 11;

// The class of an action itself; a wait for it is kWait, and for the data of a step kInput;
// kEvaluation has the forward that it begins with.
[[nodiscard]] EventClass event_class_of(ActionKind kind);
// Whether events of the class lie on the compute lane of their rank.
[[nodiscard]] constexpr bool is_on_compute_lane(EventClass event_class) {
  return event_class < EventClass::kTransfer;
}

// The end of an event that was not over when the recording ended.
inline constexpr SimTime kNotOver = std::numeric_limits<SimTime>::max();
// The greatest time in a timeline, 146 years.
inline constexpr SimTime kMaxTime = SimTime{1} << 62;
inline constexpr int32_t kMaxTimelineRanks = 1 << 20;

struct TimelineEvent {
  int32_t rank = 0;
  EventClass event_class = EventClass::kForward;
  Action action;
  SimTime begin = 0;
  SimTime end = 0;  // >= begin, or kNotOver
  int32_t step = 0;
  int32_t peer = -1;
  int64_t bytes = 0;
  bool operator==(const TimelineEvent&) const = default;
};

struct Timeline {
  std::string source = "measured";  // or "simulated"
  std::string builder;              // of the schedule
  int32_t num_stages = 1;
  int32_t num_replicas = 1;
  int32_t num_chunks = 1;               // model pieces a rank; rank = replica * num_stages + stage
  std::vector<std::string> hosts = {};  // their names; empty: one host
  std::vector<int32_t> host_of_rank = {};  // indices of hosts
  std::vector<int64_t> peak_bytes = {};    // by rank; empty: not known
  int64_t dropped_events = 0;              // of the steps before those that it has
  SimTime event_cost = 0;                  // that the recording of one event took, measured
  std::vector<TimelineEvent> events = {};
  bool operator==(const Timeline&) const = default;

  [[nodiscard]] int32_t num_ranks() const { return num_stages * num_replicas; }
};

// Whether the header's numbers fit each other and each event fits them. One sentence.
[[nodiscard]] Status verify_timeline(const Timeline& timeline);
// The same for one event of a timeline whose header verifies.
[[nodiscard]] Status verify_event(const Timeline& timeline, const TimelineEvent& event);

// Inverses of each other for every timeline that verifies. A parse error names the line.
[[nodiscard]] std::string to_text(const Timeline& timeline);
// The line of an event, without its end of line.
[[nodiscard]] std::string to_text(const TimelineEvent& event);
[[nodiscard]] Result<Timeline> parse_timeline(std::string_view text);

}  // namespace trireme
