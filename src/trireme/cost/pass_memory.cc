#include "trireme/cost/pass_memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

// Memory that several hold: it is there while its count is not zero.
class Held {
 public:
  explicit Held(const SavedValues& saved) : saved_(saved) {}

  void add(ValueId value) {
    const ValueId memory = saved_.memory_of(value);
    if (++holders_[memory] == 1) bytes_ += saved_.memory_bytes(memory);
  }
  void remove(ValueId value) {
    const ValueId memory = saved_.memory_of(value);
    if (--holders_[memory] == 0) bytes_ -= saved_.memory_bytes(memory);
  }
  void add_hidden(int64_t bytes) { bytes_ += bytes; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  const SavedValues& saved_;
  std::map<ValueId, int64_t> holders_;
  int64_t bytes_ = 0;
};

class StageWalk {
 public:
  StageWalk(const Graph& graph, const VirtualStage& stage, const SavedValues& saved)
      : graph_(graph), stage_(stage), saved_(saved) {
    for (const BoundaryValue& value : stage.sends) sent_.insert(saved.memory_of(value.value));
  }

  [[nodiscard]] int64_t forward_peak() const {
    // A value ends with its last reader; what is sent stays until the end of the pass.
    std::map<ValueId, size_t> last_use;
    for (size_t i = 0; i < stage_.nodes.size(); ++i) {
      for (const ValueId value : results(node(i))) last_use[value] = i;
      for (const ValueId value : operands(node(i))) last_use[value] = i;
    }
    for (const BoundaryValue& sent : stage_.sends) last_use[sent.value] = stage_.nodes.size();
    std::vector<std::vector<ValueId>> ends(stage_.nodes.size() + 1);
    for (const auto& [value, use] : last_use) ends[use].push_back(value);

    Held held(saved_);
    for (const BoundaryValue& received : stage_.receives) held.add(received.value);
    for (const BoundaryValue& received : stage_.receives) {
      if (last_use.contains(received.value)) held.add(received.value);
    }
    std::set<ValueId> made_here;
    for (const BoundaryValue& received : stage_.receives) made_here.insert(received.value);
    int64_t peak = held.bytes();
    for (size_t i = 0; i < stage_.nodes.size(); ++i) {
      for (const ValueId value : results(node(i))) {
        held.add(value);
        made_here.insert(value);
      }
      const SavedByNode& kept = saved_.of_node(stage_.nodes[i]);
      for (const ValueId value : kept.values) held.add(value);
      held.add_hidden(kept.hidden_bytes);
      peak = std::max(peak, held.bytes());
      for (const ValueId value : ends[i]) {
        if (made_here.contains(value)) held.remove(value);
      }
    }
    return peak;
  }

  // `works`: of a pass that leaves the gradients of products with a parameter for later, with their
  // factors and the gradients of their results; null: of a pass that does not.
  [[nodiscard]] int64_t backward_peak(const std::vector<NodeWork>* works) const {
    Held kept(saved_);
    for (const BoundaryValue& received : stage_.receives) kept.add(received.value);
    for (const NodeId id : stage_.nodes) {
      for (const ValueId value : saved_.of_node(id).values) {
        if (!is_sent(value)) kept.add(value);
      }
      kept.add_hidden(saved_.of_node(id).hidden_bytes);
    }
    Held gradients(saved_);
    std::set<ValueId> has_gradient;
    const auto begin_gradient = [&](ValueId value) {
      if (has_gradient.insert(value).second) gradients.add(value);
    };
    for (const BoundaryValue& sent : stage_.sends) {
      if (sent.carries_gradient) begin_gradient(sent.value);
    }
    int64_t peak = kept.bytes() + gradients.bytes();
    for (size_t i = stage_.nodes.size(); i-- > 0;) {
      int64_t summands = 0;  // to a gradient that is there already
      for (const ValueId value : operands(node(i))) {
        if (!saved_.carries_gradient(value) || saved_.is_input(value)) continue;
        if (!flows_back(i)) continue;
        if (has_gradient.contains(value) && saved_.memory_of(value) == value) {
          summands += saved_.bytes(value);
        }
        begin_gradient(value);
      }
      const SavedByNode& saved = saved_.of_node(stage_.nodes[i]);
      const int64_t scratch = flows_back(i) ? saved.hidden_gradient_bytes + copies(i) : 0;
      peak = std::max(peak, kept.bytes() + gradients.bytes() + summands + scratch);
      const bool is_deferred =
          works != nullptr && (*works)[stage_.nodes[i].value].weight_gradient.has_value();
      if (is_deferred) continue;
      for (const ValueId value : results(node(i))) {
        if (has_gradient.erase(value) > 0) gradients.remove(value);
      }
      for (const ValueId value : saved.values) {
        if (!is_sent(value)) kept.remove(value);
      }
      kept.add_hidden(-saved.hidden_bytes);
    }
    return peak;
  }

  // The factors of the products that have a parameter, and the gradients of their results.
  [[nodiscard]] int64_t deferred_bytes(const std::vector<NodeWork>& works) const {
    Held held(saved_);
    std::set<ValueId> gradients;
    for (size_t i = 0; i < stage_.nodes.size(); ++i) {
      if (!works[stage_.nodes[i].value].weight_gradient.has_value()) continue;
      for (const ValueId value : saved_.of_node(stage_.nodes[i]).values) held.add(value);
      for (const ValueId value : results(node(i))) gradients.insert(saved_.memory_of(value));
    }
    int64_t sum = held.bytes();
    for (const ValueId value : gradients) sum += saved_.memory_bytes(value);
    return sum;
  }

  [[nodiscard]] int64_t kept_bytes() const {
    std::set<ValueId> memory;
    int64_t sum = saved_.kept_bytes(stage_.nodes);
    for (const NodeId id : stage_.nodes) {
      for (const ValueId value : saved_.of_node(id).values) {
        const ValueId whose = saved_.memory_of(value);
        if (memory.insert(whose).second && sent_.contains(whose)) sum -= saved_.memory_bytes(whose);
      }
    }
    for (const BoundaryValue& received : stage_.receives) {
      if (memory.insert(saved_.memory_of(received.value)).second) {
        sum += saved_.bytes(received.value);
      }
    }
    return sum;
  }

 private:
  [[nodiscard]] const Node& node(size_t i) const { return graph_.nodes[stage_.nodes[i].value]; }
  [[nodiscard]] bool is_sent(ValueId value) const {
    return sent_.contains(saved_.memory_of(value));
  }
  // The kernels of a convolution copy its operand and its result's gradient into an order of their
  // own, and make the gradient of its weight beside the accumulator.
  [[nodiscard]] int64_t copies(size_t i) const {
    const OpRule* rule = find_op_rule(node(i).op);
    if (rule == nullptr || rule->kind != OpKind::kConvolution) return 0;
    int64_t sum = 0;
    for (const ValueId value : results(node(i))) sum += saved_.bytes(value);
    for (const ValueId value : operands(node(i))) sum += saved_.bytes(value);
    return sum;
  }
  [[nodiscard]] bool flows_back(size_t i) const {
    return std::ranges::any_of(results(node(i)),
                               [&](ValueId value) { return saved_.carries_gradient(value); });
  }

  const Graph& graph_;
  const VirtualStage& stage_;
  const SavedValues& saved_;
  std::set<ValueId> sent_;  // memory that messages hold
};

}  // namespace

PassMemory pass_memory(const Graph& graph, const VirtualStage& stage, const SavedValues& saved,
                       const std::vector<NodeWork>& works) {
  const StageWalk walk(graph, stage, saved);
  const int64_t kept = walk.kept_bytes();
  const int64_t forward = walk.forward_peak();
  const int64_t backward = walk.backward_peak(nullptr);
  return {.kept_bytes = kept,
          .deferred_bytes = walk.deferred_bytes(works),
          .transient_bytes = std::max<int64_t>(std::max(forward, backward) - kept, 0),
          .forward_peak_bytes = forward,
          .backward_peak_bytes = backward,
          .split_peak_bytes = walk.backward_peak(&works)};
}

}  // namespace trireme
