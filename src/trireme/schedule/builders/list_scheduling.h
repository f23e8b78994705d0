// List scheduling: finds compute orders from the costs of passes, the delay between ranks, and how
// many micro-batch chunks a rank may have in flight.
//
// A rank that is free takes what can start first: of what starts at once an I before an F before a
// W, so that W fills what would be idle. What this rule gets wrong depends on the numbers, so a few
// variants of it are tried, also such that begin no W where an I or an F comes soon, and the order
// that ends first is taken. It knows the delay: what has
// not arrived cannot start, and W is run meanwhile (Chen et al., CrossPipe, ATC 2025, section 5).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/schedule/builders.h"

namespace trireme {

// The best of the list schedules and of `candidates` that keep at most `max_in_flight` micro-batch
// chunks in flight (see peak_in_flight), by makespan. REQUIRES: max_in_flight >= num_chunks.
[[nodiscard]] ComputeOrders best_orders(const OrderRequest& request, int32_t max_in_flight,
                                        const std::vector<ComputeOrders>& candidates);

// Refuses a limit that no schedule can keep.
[[nodiscard]] Result<int32_t> in_flight_limit(const OrderRequest& request, int32_t own_limit);

}  // namespace trireme
