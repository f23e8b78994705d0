// The number of items that a loss of class targets is the mean of, where the graph does not say it.
//
// torch's cross_entropy_loss and nll_loss divide by the number of targets other than ignore_index
// or, with class weights, by the sum of the weights of those targets (torch.nn.CrossEntropyLoss,
// reduction="mean"); label smoothing does not change the divisor. Micro-batches must be weighed by
// it, or their mean is not that of the batch.
#pragma once

#include <string>

#include "trireme/graph/graph.h"

namespace trireme {

// Where the loss is such a mean, or a view or a constant multiple of one, or one with a term that
// no input decides (a constant, a penalty on weights), and the items are none or the batch, adds
// the nodes that count its targets behind it and makes their sum the items. Any other graph stays
// as it is. REQUIRES: a verified graph that knows its batch.
void derive_items(Graph& graph);

// The number of nodes that the loss needs. It is that of the model, whoever counts the items: what
// nothing but their number needs is left out.
[[nodiscard]] int64_t num_model_nodes(const Graph& graph);

// What the items are: "%n, the targets %y other than -100", "%n", "s0", "the batch".
[[nodiscard]] std::string items_to_text(const Graph& graph);

}  // namespace trireme
