// The compute orders of the builders, one a file; builders.cc lists them.
#pragma once

#include "trireme/schedule/builders.h"

namespace trireme {

// REQUIRES: at least one stage and chunk, no fewer micro-batches than 0, as many chunks as the row
// of the builder says.
Result<ComputeOrders> gpipe_orders(const OrderRequest& request);
Result<ComputeOrders> one_f_one_b_orders(const OrderRequest& request);
Result<ComputeOrders> interleaved_orders(const OrderRequest& request);
Result<ComputeOrders> zb_h1_orders(const OrderRequest& request);
Result<ComputeOrders> zb_h2_orders(const OrderRequest& request);
Result<ComputeOrders> zb_v_orders(const OrderRequest& request);
Result<ComputeOrders> dualpipe_v_orders(const OrderRequest& request);
Result<ComputeOrders> pre_recompute_orders(const OrderRequest& request);
Result<ComputeOrders> last_no_recompute_orders(const OrderRequest& request);
Result<ComputeOrders> shifted_critical_path_orders(const OrderRequest& request);
Result<ComputeOrders> two_bw_orders(const OrderRequest& request);
Result<ComputeOrders> greedy_orders(const OrderRequest& request);
Result<ComputeOrders> text_orders(const OrderRequest& request);
Result<ComputeOrders> forward_only_orders(const OrderRequest& request);

// ZB-H1 (slope 1) and ZB-H2 (slope 2): stage s is slope (S-1-s) forwards ahead of its first I, and
// slope s weight gradients behind.
ComputeOrders zero_bubble_orders(const OrderRequest& request, int32_t slope);

// An order without the micro-batches from this one on. What an order allows, it allows without
// them, too.
ComputeOrders first_micro_batches(ComputeOrders orders, int32_t num_micro_batches);

// One replica, without collectives and update: adds a send after the pass that makes its data, and
// a receive before the pass that needs it, or where the order lists RG. What one rank sends to
// another is received in the order in which it is sent. An RG of what nothing sends is left out.
Schedule with_transfers(const OrderRequest& request, const ComputeOrders& orders);

}  // namespace trireme
