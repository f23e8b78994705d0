// partition(): a Graph and the cuts of its virtual stages -> what each runs, owns, reads and passes
// on, and what the stages, which hold several of them with chunks, have together.
//
// A parameter belongs to every stage that uses it. Replicated nodes run in every virtual stage that
// needs them. A value that is needed two virtual stages later is forwarded by the one between.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/placement.h"

namespace trireme {

// A tensor that travels from a virtual stage to the next, and its gradient back.
struct BoundaryValue {
  ValueId value;
  bool carries_gradient = false;
  bool operator==(const BoundaryValue&) const = default;
};

struct VirtualStage {
  std::vector<NodeId> nodes;            // in execution order, replicated ones included
  std::vector<BoundaryValue> receives;  // from the virtual stage before, by value id
  std::vector<BoundaryValue> sends;     // to the one after, by value id
  std::vector<int32_t> inputs;          // indices into Graph::inputs that it reads, ascending
};

// What one rank of each replica holds.
struct Stage {
  std::vector<int32_t> virtual_stages;  // by chunk
  std::vector<NodeId> nodes;            // of all of them, in execution order, each once
  std::vector<int32_t> inputs;          // of all of them, ascending
};

struct Partition {
  std::vector<VirtualStage> virtual_stages;  // as a sample passes them
  std::vector<Stage> stages;
  // Parameters that several stages use: index into Graph::inputs, and the stages, ascending.
  struct TiedParameter {
    int32_t input = 0;
    std::vector<int32_t> stages;
  };
  std::vector<TiedParameter> tied;
};

// `cuts`: the first node of virtual stages 1, 2, ...; ascending. REQUIRES: legal cuts, and as many
// virtual stages as `num_stages` stages have in equal numbers of chunks.
[[nodiscard]] Partition partition_graph(const Graph& graph, const std::vector<bool>& is_replicated,
                                        const std::vector<int32_t>& cuts, int32_t num_stages,
                                        Placement placement = Placement::kLooped);

// The same for stages of unequal numbers of chunks: of each its virtual stages, in their order.
// REQUIRES: each virtual stage is one's.
[[nodiscard]] Partition partition_graph(const Graph& graph, const std::vector<bool>& is_replicated,
                                        const std::vector<int32_t>& cuts,
                                        const std::vector<std::vector<int32_t>>& stages);

// The user's inputs that a stage reads, counted among the user's, ascending.
[[nodiscard]] std::vector<size_t> user_inputs(const Graph& graph, const Stage& stage);

}  // namespace trireme
