#include "trireme/comm/transfer.h"

#include "trireme/base/check.h"

namespace trireme {
namespace {

double server_seconds(double bytes, const Route& route) {
  const double n = route.members;
  const double k = route.num_servers;
  const double parts = n * n + k * n - 2 * k;
  if (route.members == 1) return 0;
  return 2 * (route.link.latency_s + n * (n - 1) / parts * bytes / route.link.bytes_per_s);
}

double seconds_of(Operation operation, double bytes, const Route& route) {
  const double others = route.members - 1;
  switch (operation) {
    case Operation::kAllReduce:
      if (route.summing == Summing::kServers) return server_seconds(bytes, route);
      return all_reduce_seconds(AllReduceFormula::kRing, route.members, bytes, route.link);
    case Operation::kReduceScatter:
    case Operation::kAllGather:
      if (route.summing == Summing::kServers) return server_seconds(bytes, route) / 2;
      return reduce_scatter_seconds(route.members, bytes, route.link);
    case Operation::kRows:
      return others * transfer_seconds(bytes, route.link);
    case Operation::kMessage:
      return transfer_seconds(bytes, route.link);
  }
  TRIREME_CHECK(false, "no such operation");
}

}  // namespace

std::string_view to_text(TransferKind kind) {
  switch (kind) {
    case TransferKind::kAllReduce:
      return "all-reduce";
    case TransferKind::kRows:
      return "rows";
    case TransferKind::kActivation:
      return "activation";
    case TransferKind::kGradient:
      return "gradient";
  }
  TRIREME_CHECK(false, "no such kind");
}

UnitCost unit_cost(Operation operation, int64_t bytes, const Route& route) {
  const double startup = seconds_of(operation, 0, route);
  const double whole = seconds_of(operation, static_cast<double>(bytes), route);
  return {.startup = to_sim_time(startup),
          .on_link = to_sim_time(whole - startup + route.overhead_s)};
}

}  // namespace trireme
