// What a model asks of its data, and what the data says of the model's symbolic sizes.
#pragma once

#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/dataset.h"
#include "trireme/graph/graph.h"

namespace trireme {

// The user's inputs in the order of the graph, for open_dataset. Error: an input without a batch
// dim.
[[nodiscard]] Result<std::vector<InputSpec>> input_specs(const Graph& graph);

// The values of the symbols that the rows of the data decide; the batch is not among them. Errors:
// two inputs disagree.
[[nodiscard]] Result<SymbolValues> bind_symbols(const Graph& graph, const Dataset& data);

}  // namespace trireme
