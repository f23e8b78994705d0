// Where a Graph can be cut into a chain of stages, and what crosses each cut.
//
// Cut p lies before node p. A value *crosses* it when it is made before and read at or after p and
// is not one that every stage makes for itself. Values that every stage makes for itself come from
// *replicated* nodes: cheap nodes that depend on inputs, buffers and constants only (masks,
// positions, rotary tables).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"

namespace trireme {

struct CutAnalysis {
  std::vector<bool> is_replicated;  // by node
  // By cut position 0 .. number of nodes. An illegal cut would part an in-place write from the
  // memory it changes, or a size that the data decides from its use.
  std::vector<bool> is_legal;
  std::vector<std::string> why_illegal;  // by position; empty where legal
  std::vector<int64_t> live_bytes;       // by position: bytes that cross the cut
  std::vector<double> flops_before;      // by position: forward flops of all nodes before it
};

// `symbols` gives the sizes at which bytes and flops are counted.
[[nodiscard]] Result<CutAnalysis> analyze_cuts(const Graph& graph, const SymbolValues& symbols);

// carries_gradient[v]: the value may need a gradient. Never false where autograd would need one.
[[nodiscard]] std::vector<bool> carries_gradient(const Graph& graph);

// The chain of blocks: cut positions, ascending, at local minima of the live bytes. kModules leaves
// out those inside one leaf module, such as between the operators of an RMSNorm.
enum class BlockGrain : uint8_t { kModules, kOperators };
[[nodiscard]] std::vector<int32_t> block_cuts(const Graph& graph, const CutAnalysis& cuts,
                                              BlockGrain grain = BlockGrain::kModules);

// The values of the symbols for `batch` samples; other symbols keep the sizes of the export.
[[nodiscard]] SymbolValues example_symbols(const Graph& graph, int64_t batch);

}  // namespace trireme
