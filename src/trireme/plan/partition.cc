#include "trireme/plan/partition.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/check.h"
#include "trireme/graph/cuts.h"

namespace trireme {
namespace {

struct Producer {
  int32_t node = -1;
  int32_t stage = -1;  // virtual; -1: an input of the graph or a replicated node
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const std::vector<bool>& is_replicated,
              const std::vector<int32_t>& cuts)
      : graph_(graph), is_replicated_(is_replicated), cuts_(cuts), producers_(graph.values.size()) {
    partition_.virtual_stages.resize(cuts.size() + 1);
    for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
      for (ValueId id : results(graph.nodes[i])) {
        producers_[id.value] = {i, is_replicated[i] ? -1 : stage_of(i)};
      }
    }
    last_use_.assign(graph.values.size(), -1);
  }

  Partition run(const std::vector<std::vector<int32_t>>& stages) {
    for (int32_t stage = 0; stage < num_virtual_stages(); ++stage) collect_nodes(stage);
    find_boundaries();
    for (int32_t stage = 0; stage < num_virtual_stages(); ++stage) collect_inputs(stage);
    for (const std::vector<int32_t>& virtual_stages : stages) join_chunks(virtual_stages);
    find_tied();
    return std::move(partition_);
  }

 private:
  [[nodiscard]] int32_t num_virtual_stages() const {
    return static_cast<int32_t>(partition_.virtual_stages.size());
  }
  [[nodiscard]] int32_t stage_of(int32_t node) const {
    return static_cast<int32_t>(std::upper_bound(cuts_.begin(), cuts_.end(), node) - cuts_.begin());
  }

  // The nodes of the virtual stage and the replicated nodes that they need.
  void collect_nodes(int32_t stage) {
    std::set<int32_t> nodes;
    std::vector<ValueId> pending;
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      if (is_replicated_[i] || stage_of(i) != stage) continue;
      nodes.insert(i);
      for (ValueId id : operands(graph_.nodes[i])) pending.push_back(id);
    }
    if (stage == num_virtual_stages() - 1) {
      pending.push_back(graph_.loss);
      if (const auto* items = std::get_if<ValueId>(&graph_.items)) pending.push_back(*items);
    }
    while (!pending.empty()) {
      const ValueId id = pending.back();
      pending.pop_back();
      last_use_[id.value] = std::max(last_use_[id.value], stage);
      const int32_t node = producers_[id.value].node;
      if (node < 0 || !is_replicated_[node] || !nodes.insert(node).second) continue;
      for (ValueId operand : operands(graph_.nodes[node])) pending.push_back(operand);
    }
    for (const int32_t node : nodes) partition_.virtual_stages[stage].nodes.emplace_back(node);
  }

  void find_boundaries() {
    const std::vector<bool> carries = carries_gradient(graph_);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const int32_t first = producers_[v].stage;
      if (first < 0) continue;
      const BoundaryValue boundary{ValueId(static_cast<int64_t>(v)), carries[v]};
      for (int32_t stage = first; stage < last_use_[v]; ++stage) {
        partition_.virtual_stages[stage].sends.push_back(boundary);
        partition_.virtual_stages[stage + 1].receives.push_back(boundary);
      }
    }
  }

  void collect_inputs(int32_t stage_index) {
    VirtualStage& stage = partition_.virtual_stages[stage_index];
    std::set<int32_t> read;
    for (NodeId node : stage.nodes) {
      for (ValueId id : operands(graph_.nodes[node.value])) read.insert(id.value);
    }
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.inputs.size()); ++i) {
      if (read.contains(graph_.inputs[i].value.value)) stage.inputs.push_back(i);
    }
  }

  void join_chunks(const std::vector<int32_t>& virtual_stages) {
    Stage& stage = partition_.stages.emplace_back();
    stage.virtual_stages = virtual_stages;
    std::set<NodeId> nodes;
    std::set<int32_t> inputs;
    for (const int32_t index : virtual_stages) {
      const VirtualStage& part = partition_.virtual_stages[index];
      nodes.insert(part.nodes.begin(), part.nodes.end());
      inputs.insert(part.inputs.begin(), part.inputs.end());
    }
    stage.nodes.assign(nodes.begin(), nodes.end());
    stage.inputs.assign(inputs.begin(), inputs.end());
  }

  void find_tied() {
    std::map<int32_t, std::vector<int32_t>> users;
    for (size_t stage = 0; stage < partition_.stages.size(); ++stage) {
      for (const int32_t input : partition_.stages[stage].inputs) {
        users[input].push_back(static_cast<int32_t>(stage));
      }
    }
    for (auto& [input, stages] : users) {
      if (graph_.inputs[input].kind != GraphInput::Kind::kParameter || stages.size() < 2) continue;
      partition_.tied.push_back({input, stages});
    }
  }

  const Graph& graph_;
  const std::vector<bool>& is_replicated_;
  const std::vector<int32_t>& cuts_;
  std::vector<Producer> producers_;
  std::vector<int32_t> last_use_;  // by value: the last virtual stage that reads it
  Partition partition_;
};

}  // namespace

Partition partition_graph(const Graph& graph, const std::vector<bool>& is_replicated,
                          const std::vector<int32_t>& cuts, int32_t num_stages,
                          Placement placement) {
  TRIREME_CHECK((cuts.size() + 1) % static_cast<size_t>(num_stages) == 0,
                "stages of unequal numbers of chunks");
  const auto num_chunks = static_cast<int32_t>(cuts.size() + 1) / num_stages;
  std::vector<std::vector<int32_t>> stages(num_stages);
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    for (int32_t chunk = 0; chunk < num_chunks; ++chunk) {
      stages[stage].push_back(chunk * num_stages +
                              place_within_chunk(placement, num_stages, chunk, stage));
    }
  }
  return partition_graph(graph, is_replicated, cuts, stages);
}

Partition partition_graph(const Graph& graph, const std::vector<bool>& is_replicated,
                          const std::vector<int32_t>& cuts,
                          const std::vector<std::vector<int32_t>>& stages) {
  return Partitioner(graph, is_replicated, cuts).run(stages);
}

std::vector<size_t> user_inputs(const Graph& graph, const Stage& stage) {
  std::vector<size_t> inputs;
  size_t user_index = 0;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].kind != GraphInput::Kind::kUser) continue;
    if (std::ranges::count(stage.inputs, static_cast<int32_t>(i)) != 0)
      inputs.push_back(user_index);
    ++user_index;
  }
  return inputs;
}

}  // namespace trireme
