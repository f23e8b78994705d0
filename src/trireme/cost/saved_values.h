// What a forward pass leaves in memory for its backward: the tensors that autograd saves.
//
// Each operator saves some of what it reads or makes, by its row in kRules: what torch's
// derivatives.yaml names in the formula of its gradient, and what our own kernels keep (dropout
// keeps nothing, for its numbers are counted again). A tensor that several operators save is there
// once, and so is what shares its memory. Parameters, buffers and the inputs of the batch lie in
// memory anyway and do not count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/graph/graph.h"

namespace trireme {

// What one node saves for its backward.
struct SavedByNode {
  std::vector<ValueId> values;  // of the graph
  int64_t hidden_bytes = 0;  // tensors that only autograd knows, such as those of a cross entropy
  int64_t hidden_gradient_bytes = 0;  // of their gradients, while the node's backward runs
};

// Which values of a graph share memory, as far as the forward pass alone decides it, and what its
// nodes save. Sizes are those of `symbols`; a value whose size only the data decides has 0 bytes.
class SavedValues {
 public:
  SavedValues(const Graph& graph, const SymbolValues& symbols);

  [[nodiscard]] const SavedByNode& of_node(NodeId node) const { return by_node_[node.value]; }
  // The value whose memory it is: itself, but for views.
  [[nodiscard]] ValueId memory_of(ValueId value) const { return memory_[value.value]; }
  // Of the memory of a value; 0 for parameters, buffers and the inputs of the batch.
  [[nodiscard]] int64_t memory_bytes(ValueId value) const;
  // Of the value as it is read, whoever owns its memory.
  [[nodiscard]] int64_t bytes(ValueId value) const { return bytes_[value.value]; }
  [[nodiscard]] bool carries_gradient(ValueId value) const { return carries_[value.value]; }
  // A value whose gradient is summed up in memory that is there anyway.
  [[nodiscard]] bool is_parameter(ValueId value) const { return is_parameter_[value.value]; }
  [[nodiscard]] bool is_input(ValueId value) const { return is_input_[value.value]; }
  // What these nodes leave together.
  [[nodiscard]] int64_t kept_bytes(std::span<const NodeId> nodes) const;

 private:
  void find_memory(const Graph& graph);
  [[nodiscard]] SavedByNode saved_by(const Graph& graph, const Node& node,
                                     const SymbolValues& symbols) const;

  std::vector<ValueId> memory_;
  std::vector<int64_t> bytes_;
  std::vector<bool> carries_;
  std::vector<bool> is_parameter_;
  std::vector<bool> is_input_;
  std::vector<SavedByNode> by_node_;
};

}  // namespace trireme
