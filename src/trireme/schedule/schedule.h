// Schedule: what every rank does in one training step, in order.
//
// A rank runs the actions of its list one after the other. Compute actions (F to U below) occupy
// the device. A send is posted and does not block; a receive in the list is the wait for a message,
// whose buffer was posted `look_ahead` receives earlier; a collective is issued, and waited for by
// the first action that needs its result (waits_for() below), at the latest when the step ends.
// Everything that travels is an action, scalars included.
//
//   text    action                                              index
//   F3.1    forward of micro-batch 3, chunk 1                   micro-batch
//   Fc3.1   the same, but keeps only its input                  micro-batch
//   R3.1    runs the forward of Fc3.1 again and keeps all       micro-batch
//   B3.1    backward of F3.1 or R3.1                            micro-batch
//   I3.1    the gradients of its inputs alone, ...              micro-batch
//   W3.1    ... those of its weights: I and W together are B    micro-batch
//   U       optimizer update of every chunk of the rank         -
//   SA3.1   send the activations that chunk 1 made              micro-batch
//   RA3.1   receive the activations that chunk 1 needs          micro-batch
//   SG3.1   send the gradients of what RA3.1 received           micro-batch
//   RG3.1   receive the gradients of what SA3.1 sent            micro-batch
//   AR2     all-reduce of gradient bucket 2 over the replicas   bucket
//   TR1     all-reduce of tied parameter group 1 over the       tied group
//           stages of one replica that hold it
//   SC0     scalars over all ranks: 0 losses and item counts,   ScalarExchange
//           1 squared gradient norms
//   SX2     of row tables over the replicas: 0 how many rows    RowExchangeStep
//           each has read, 1 which, from 2 on the sums of the
//           gradients of those rows, table by table
//
// A chunk is one piece of the model on a rank. With S stages, chunk c of stage s is virtual stage
// c * S + s; with placement=v, every odd chunk runs backwards: c * S + (S - 1 - s). What goes from
// a virtual stage to the next on the same rank is no transfer: it is read where it is. `.0` is not
// written. Micro-batches count from 0 within the replica. rank = replica * num_stages + stage.
//
// A step of an uninterrupted run may overlap with its neighbours: an action ends in + where it
// belongs to the batch of the next step, and in - where to that of the step before. F0+ is the
// forward of the next batch's first micro-batch, U- the update that the batch before has left. The
// header says by stage how many forwards of its batch a step finds done (found=), and how many of
// the next one it runs ahead (ahead=); with found= it has the update of the batch before, and with
// ahead= its own is left. Such steps keep two versions of the weights (versions=2), of which a
// batch sees the one that the batches before the last have made: U- comes before F+. With
// updates-at-end each of them ends with the sums and the update of its own batch, and leaves none.
//
// The text form is a header line and one line a rank, in ascending order:
//
// With early-sums an AR is issued before its place in the list, where the gradients of its bucket
// are final while a pass runs that makes gradients: in the order of the list, and none behind a TR.
//
//   schedule 1f1b stages=2 micro-batches=2,1 look-ahead=2 buckets=1,1 tied=0+1 clip-norm
//   rank 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 SC0 TR0 AR0 SC1 U
//   rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 TR0 AR0 SC1 U
//   ...
//
//   text    = header { rank }                  blank lines are skipped, words are parted by spaces
//   header  = "schedule" NAME { field }        each field at most once, written in this order:
//   field   = "stages=" N                      needed
//           | "chunks=" N                      1 when absent
//           | "placement=v"                    looped when absent
//           | "micro-batches=" N { "," N }     needed; one number a replica
//           | "look-ahead=" N                  2 when absent
//           | "buckets=" N { "," N }           one number a stage; all 0 when absent
//           | "tied=" group { "," group }      group = N "+" N { "+" N }: the stages that hold it
//           | "tied-buckets=" N { "," N }      one number a stage: of its buckets, the last so many
//                                              are summed after TR; all where there are tied groups
//           | "row-tables=" N { "," N }        one number a stage: tables whose gradients are
//           summed
//                                              row by row; all 0 when absent
//           | "clip-norm"
//           | "versions=" N                  1 when absent
//           | "found=" N { "," N }           one number a stage
//           | "ahead=" N { "," N }           one number a stage
//           | "updates-at-end"                 see above
//           | "early-sums"                     see above
//           | "one-urgency"                    no message goes before another that was posted first
//           | "evaluation"                     is_training is false
//   rank    = "rank" N ":" { action }          N counts from 0
//   action  = KIND [ N ] [ "." N ] [ "+" | "-" ]     as in the table above; U has no number
//   N       = decimal digits without sign or leading zeros
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/plan/placement.h"

namespace trireme {

enum class ActionKind : uint8_t {
  kForward,
  kForwardKeepingInput,
  kRecompute,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kUpdate,
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  kAllReduce,
  kTiedReduce,
  kScalars,
  kRowExchange,
};

// A compute action occupies the device.
[[nodiscard]] constexpr bool is_compute(ActionKind kind) { return kind <= ActionKind::kUpdate; }
// F or Fc.
[[nodiscard]] constexpr bool is_forward(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kForwardKeepingInput;
}
// What the gradients of the outputs go into: B or I.
[[nodiscard]] constexpr bool takes_gradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
}
// What ends the backward of a micro-batch: B or W.
[[nodiscard]] constexpr bool ends_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}
[[nodiscard]] constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}
[[nodiscard]] constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::kReceiveActivation || kind == ActionKind::kReceiveGradient;
}
[[nodiscard]] constexpr bool is_collective(ActionKind kind) {
  return kind >= ActionKind::kAllReduce;
}
// The kinds whose index is a micro-batch; only these have a chunk.
[[nodiscard]] constexpr bool has_micro_batch(ActionKind kind) {
  return kind != ActionKind::kUpdate && !is_collective(kind);
}

inline constexpr int32_t kNumActionKinds = 15;
// What the tags of transfers have room for (exec/tags.h).
inline constexpr int32_t kMaxMicroBatches = 1 << 14;
inline constexpr int32_t kMaxChunks = 1 << 4;
// A rank waits for its oldest send when it has posted more than this.
inline constexpr size_t kMaxSendsInFlight = 16;

enum class ScalarExchange : int32_t { kLosses = 0, kSquaredNorms = 1 };
// The index of SX, once a stage but for the sums, of which there is one a row table: table t has
// kFirstSum + t.
enum class RowExchangeStep : int32_t { kCounts = 0, kIds = 1, kFirstSum = 2 };
[[nodiscard]] constexpr int32_t sum_of_row_table(int32_t table) {
  return static_cast<int32_t>(RowExchangeStep::kFirstSum) + table;
}

struct Action {
  ActionKind kind = ActionKind::kForward;
  int32_t index = 0;  // micro-batch, bucket, tied group, ScalarExchange or RowExchangeStep; 0 for U
  int32_t chunk = 0;
  int32_t batch = 0;  // -1, 0 or 1: of the step before, of this one, of the next; see unroll.h
  bool operator==(const Action&) const = default;
};

// Whether an action needs the result of a collective that its rank has issued before it, of its own
// batch: an AR the sums of tied gradients, SX1 and the sums of rows what SX0 and SX1 tell, SC1 all
// gradients and the number of items, U all there is.
[[nodiscard]] constexpr bool waits_for(const Action& action, const Action& collective) {
  if (action.batch != collective.batch) return false;
  if (action.kind == ActionKind::kAllReduce) return collective.kind == ActionKind::kTiedReduce;
  if (action.kind == ActionKind::kRowExchange) {
    return collective.kind == ActionKind::kRowExchange && collective.index < action.index &&
           collective.index < static_cast<int32_t>(RowExchangeStep::kFirstSum);
  }
  if (action.kind == ActionKind::kScalars) {
    return action.index == static_cast<int32_t>(ScalarExchange::kSquaredNorms);
  }
  return action.kind == ActionKind::kUpdate;
}

// What a communication policy (communication.h) decides of a schedule.
struct CommunicationRules {
  bool sums_early = false;       // AR from within the passes that make its gradients
  bool updates_at_end = false;   // of steps that overlap: none leaves its update to the next
  bool has_one_urgency = false;  // else transfers between stages go before collectives
  bool operator==(const CommunicationRules&) const = default;
};

struct Schedule {
  std::string builder;  // the row of builders.h that made it
  int32_t num_stages = 1;
  int32_t num_chunks = 1;  // model pieces a rank
  Placement placement = Placement::kLooped;
  std::vector<int32_t> num_micro_batches = {};  // of each replica; their number is dp
  int32_t look_ahead = 2;   // receives posted ahead of the one that is waited for
  bool is_training = true;  // false: F alone, no U, AR, TR
  // tied_groups[g]: the stages that hold tied parameter group g, ascending, at least two.
  std::vector<std::vector<int32_t>> tied_groups = {};
  // num_buckets[stage]: gradient buckets that are reduced over the replicas; 0 when dp is 1.
  std::vector<int32_t> num_buckets = {};
  // By stage, or empty for all of the stages that hold a tied group: how many of the buckets come
  // after TR, the last ones. (What is in the others no other stage holds.)
  std::vector<int32_t> num_tied_buckets = {};
  // By stage, or empty for none: parameters of which a batch reads and changes a few rows.
  std::vector<int32_t> num_row_tables = {};
  bool clips_norm = false;  // SC1 before U
  int32_t num_weight_versions = 1;
  // By stage, or empty: what of its batch the step finds done, and of the next batch it does.
  std::vector<int32_t> num_found = {};
  std::vector<int32_t> num_ahead = {};
  CommunicationRules communication = {};
  int32_t num_steps = 1;  // more: several steps as one (unroll.h), which have no text form
  std::vector<std::vector<Action>> ranks = {};
  bool operator==(const Schedule&) const = default;
};

[[nodiscard]] std::string to_text(const Action& action);
[[nodiscard]] Result<Action> parse_action(std::string_view text);

// Inverses of each other for every schedule whose shape is right (verify.h, rule "shape"). A parse
// error names the line and the word.
[[nodiscard]] std::string to_text(const Schedule& schedule);
[[nodiscard]] Result<Schedule> parse_schedule(std::string_view text);

}  // namespace trireme
