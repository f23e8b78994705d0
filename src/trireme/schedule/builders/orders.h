// The compute orders of the builders, one a file; builders.cc lists them.
#pragma once

#include "trireme/schedule/builders.h"

namespace trireme {

// REQUIRES: at least one stage and chunk, no fewer micro-batches than 0.
ComputeOrders gpipe_orders(const OrderRequest& request);
ComputeOrders one_f_one_b_orders(const OrderRequest& request);
ComputeOrders interleaved_orders(const OrderRequest& request);
ComputeOrders zb_h1_orders(const OrderRequest& request);
ComputeOrders zb_v_orders(const OrderRequest& request);
ComputeOrders forward_only_orders(const OrderRequest& request);

}  // namespace trireme
