// How long collectives take by formula: each message costs a latency and its bytes over a bandwidth
// (alpha and beta). For plans of which no event needs to be known; the simulator runs the same
// algorithms over the links of a Cluster.
//
// Of `bytes` at each of n members, with alpha a message and beta seconds a byte:
//
//   ring              2 (n-1) alpha + 2 (n-1)/n bytes beta            (Patarasu & Yuan 2009)
//   tree              2 ceil(log2 n) (alpha + bytes beta)             (binomial reduce, broadcast)
//   halving-doubling  2 ceil(log2 n) alpha + 2 (n-1)/n bytes beta     (Thakur et al. 2005,
//   sec. 4.5)
//                     and where n is no power of two 2 (alpha + bytes beta) to fold the rest in
//   hierarchical      a reduce-scatter in each host, a ring between hosts over a member's part, an
//                     all-gather in each host
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

struct AlphaBeta {
  double latency_s = 0;    // alpha
  double bytes_per_s = 0;  // 1 / beta
  bool operator==(const AlphaBeta&) const = default;
};

enum class AllReduceFormula : uint8_t { kRing, kTree, kHalvingDoubling };
[[nodiscard]] std::string_view to_text(AllReduceFormula formula);

// Seconds. 0 for one member. REQUIRES: members >= 1, bytes >= 0, a positive bandwidth.
[[nodiscard]] double all_reduce_seconds(AllReduceFormula formula, int64_t members, double bytes,
                                        const AlphaBeta& link);
// By a ring; an all-gather takes as long. `bytes`: of the whole, before or after.
[[nodiscard]] double reduce_scatter_seconds(int64_t members, double bytes, const AlphaBeta& link);
// `outer`: of each member, with all members of a host at once.
[[nodiscard]] double hierarchical_all_reduce_seconds(int64_t members_per_host, int64_t hosts,
                                                     double bytes, const AlphaBeta& inner,
                                                     const AlphaBeta& outer);
[[nodiscard]] double transfer_seconds(double bytes, const AlphaBeta& link);

}  // namespace trireme
