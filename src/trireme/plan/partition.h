// partition(): a Graph and the cuts of its stages -> what each stage runs, owns, reads and passes
// on.
//
// A parameter belongs to every stage that uses it. Replicated nodes run in every stage that needs
// them. A value that is needed two stages later is forwarded by the stage between.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"

namespace trireme {

// A tensor that travels from a stage to the next, and its gradient back.
struct BoundaryValue {
  ValueId value;
  bool carries_gradient = false;
  bool operator==(const BoundaryValue&) const = default;
};

struct Stage {
  std::vector<NodeId> nodes;            // in execution order, replicated ones included
  std::vector<BoundaryValue> receives;  // from the stage before, by value id
  std::vector<BoundaryValue> sends;     // to the stage after, by value id
  std::vector<int32_t> inputs;          // indices into Graph::inputs that the stage reads
};

struct Partition {
  std::vector<Stage> stages;
  // Parameters that several stages use: index into Graph::inputs, and the stages, ascending.
  struct TiedParameter {
    int32_t input = 0;
    std::vector<int32_t> stages;
  };
  std::vector<TiedParameter> tied;
};

// `cuts`: the first node of stages 1, 2, ...; ascending. REQUIRES: legal cuts.
[[nodiscard]] Partition partition_graph(const Graph& graph, const std::vector<bool>& is_replicated,
                                        const std::vector<int32_t>& cuts);

// The user's inputs that a stage reads, counted among the user's, ascending.
[[nodiscard]] std::vector<size_t> user_inputs(const Graph& graph, const Stage& stage);

}  // namespace trireme
