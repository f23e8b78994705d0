// Passes that make an imported Graph the one that runs. Each leaves a verified Graph behind.
#pragma once

#include "trireme/graph/graph.h"

namespace trireme {

// Removes `_assert_*` and guard nodes: the reader checks inputs against the sizes itself.
void remove_assertions(Graph& graph);

// Removes nodes whose results nobody reads and which change nothing that is read, values that
// nothing defines any more, and regions without nodes. Inputs stay.
void remove_dead_code(Graph& graph);

}  // namespace trireme
