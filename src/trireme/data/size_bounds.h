// Whether the sizes of a run are sizes for which the model was exported.
//
// An archive says for some dims which sizes it is right for, such as a length that has a position
// embedding. Outside of them it may fail, or give wrong numbers.
#pragma once

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/graph/sym_expr.h"

namespace trireme {

// Of the rows of the data: `symbols` has the sizes of their dims.
[[nodiscard]] Status check_row_sizes(const Graph& graph, const SymbolValues& symbols);

// Of the micro-batches of a step of `num_samples`.
[[nodiscard]] Status check_micro_batch_sizes(const Graph& graph, int64_t num_samples, int32_t dp,
                                             int32_t micro_batches);

}  // namespace trireme
