// Transfer: bytes that one compute task makes and a later one needs, the same in every step.
//
// What a communication policy decides about, and the arbiter: sums of gradients over replicas, the
// exchange of the rows of an embedding table, and messages between neighbouring stages.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/cost/collectives.h"

namespace trireme {

enum class TransferKind : uint8_t { kAllReduce, kRows, kActivation, kGradient };
inline constexpr size_t kNumTransferKinds = 4;
[[nodiscard]] std::string_view to_text(TransferKind kind);
// From a stage to another, and not among replicas.
[[nodiscard]] constexpr bool is_message(TransferKind kind) {
  return kind == TransferKind::kActivation || kind == TransferKind::kGradient;
}

// How the members of a route add. Servers: each member has a part of the sums, and `num_servers`
// machines more have as much as balances all links, as BytePS parts them (Jiang et al., OSDI 2020).
enum class Summing : uint8_t { kRing, kServers };

// Where transfers go: who takes part, at what cost, and over which links. A link is a direction;
// its number means something only in comparison with others.
struct Route {
  AlphaBeta link;                  // of the slowest hop
  int32_t members = 2;             // of the ring; 2 for messages
  std::vector<int32_t> path = {};  // links; the first is that by which the sender leaves its host
  double overhead_s = 0;  // of each unit, whatever its size: its links carry nothing meanwhile
  Summing summing = Summing::kRing;
  int32_t num_servers = 0;  // of kServers: 0 to members
  bool operator==(const Route&) const = default;
};

// How a unit (policy.h) travels among the n members of a route. Of `bytes` at each member:
//
//   all-reduce by ring        2 (n-1) alpha + 2 (n-1)/n bytes beta       (cost/collectives.h)
//   all-reduce by servers     2 alpha + 2 n (n-1) / (n^2 + k n - 2 k) bytes beta
//   reduce-scatter            half of it
//   all-gather                the other half
//   rows                      (n-1) (alpha + bytes beta)      every member gets the rows of all
//   message                   alpha + bytes beta
//
// With k servers as many as members that is bytes beta, with none what the ring has.
enum class Operation : uint8_t { kAllReduce, kReduceScatter, kAllGather, kRows, kMessage };

// and the route's overhead each. The start-up, which is what 0 bytes take without the overhead,
// occupies no link; the rest does, alone or with others.
struct UnitCost {
  SimTime startup = 0;
  SimTime on_link = 0;
  [[nodiscard]] SimTime total() const { return startup + on_link; }
  bool operator==(const UnitCost&) const = default;
};
// REQUIRES: bytes >= 0, a positive bandwidth.
[[nodiscard]] UnitCost unit_cost(Operation operation, int64_t bytes, const Route& route);

// A task by its device and its place in the device's list.
struct TaskRef {
  int32_t device = 0;
  int32_t task = 0;
  auto operator<=>(const TaskRef&) const = default;
};

// Some transfers stand for others: an embedding table is summed whole, or its rows are exchanged.
enum class TableExchange : uint8_t { kAny, kWholeTable, kRowsOnly };

struct Transfer {
  TransferKind kind = TransferKind::kAllReduce;
  int64_t bytes = 0;                             // at each member
  int32_t route = 0;                             // index
  TaskRef producer;                              // it is ready when this task ends
  TaskRef consumer;                              // which starts no earlier than it has arrived
  int32_t distance = 0;                          // from the producer's step to the consumer's
  TableExchange exchange = TableExchange::kAny;  // for which of the two it exists
  bool operator==(const Transfer&) const = default;
};

}  // namespace trireme
