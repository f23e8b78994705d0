#include "trireme/cost/collectives.h"

#include <bit>

#include "trireme/base/check.h"

namespace trireme {
namespace {

double ceil_log2(int64_t n) {
  return static_cast<double>(std::bit_width(static_cast<uint64_t>(n - 1)));
}

}  // namespace

std::string_view to_text(AllReduceFormula formula) {
  switch (formula) {
    case AllReduceFormula::kRing:
      return "ring";
    case AllReduceFormula::kTree:
      return "tree";
    case AllReduceFormula::kHalvingDoubling:
      return "halving-doubling";
  }
  TRIREME_CHECK(false, "no such formula");
}

double transfer_seconds(double bytes, const AlphaBeta& link) {
  return link.latency_s + bytes / link.bytes_per_s;
}

double reduce_scatter_seconds(int64_t members, double bytes, const AlphaBeta& link) {
  const auto n = static_cast<double>(members);
  return (n - 1) * transfer_seconds(bytes / n, link);
}

double all_reduce_seconds(AllReduceFormula formula, int64_t members, double bytes,
                          const AlphaBeta& link) {
  if (formula == AllReduceFormula::kRing) return 2 * reduce_scatter_seconds(members, bytes, link);
  if (formula == AllReduceFormula::kTree) {
    return 2 * ceil_log2(members) * transfer_seconds(bytes, link);
  }
  // Of a number that is no power of two the rest hands its bytes in and gets the sum back.
  const auto whole = std::bit_floor(static_cast<uint64_t>(members));
  const bool folds = whole != static_cast<uint64_t>(members);
  const auto n = static_cast<double>(whole);
  const double among = 2 * ceil_log2(static_cast<int64_t>(whole)) * link.latency_s +
                       2 * (n - 1) / n * bytes / link.bytes_per_s;
  return among + (folds ? 2 * transfer_seconds(bytes, link) : 0);
}

double hierarchical_all_reduce_seconds(int64_t members_per_host, int64_t hosts, double bytes,
                                       const AlphaBeta& inner, const AlphaBeta& outer) {
  const double part = bytes / static_cast<double>(members_per_host);
  return 2 * reduce_scatter_seconds(members_per_host, bytes, inner) +
         all_reduce_seconds(AllReduceFormula::kRing, hosts, part, outer);
}

}  // namespace trireme
