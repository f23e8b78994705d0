#include "trireme/graph/cuts.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/draws.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

bool is_grad_enabled(const Graph& graph, RegionId region) {
  while (region.value > 0) {
    const Region& r = graph.regions[region.value];
    if (r.kind == Region::Kind::kGradMode) return r.is_enabled;
    region = r.parent;
  }
  return true;
}

std::vector<bool> find_replicated(const Graph& graph, const std::vector<ValueId>& roots) {
  std::vector<bool> is_memory_written(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (ValueId id : written_values(node)) is_memory_written[roots[id.value].value] = true;
  }
  // A value that is no parameter, depends on none, and whose memory nobody changes.
  std::vector<bool> is_free(graph.values.size(), false);
  for (const GraphInput& input : graph.inputs) {
    is_free[input.value.value] = input.kind != GraphInput::Kind::kParameter &&
                                 !is_memory_written[roots[input.value.value].value];
  }
  std::vector<bool> is_replicated;
  for (const Node& node : graph.nodes) {
    const OpRule* rule = find_op_rule(node.op);
    const std::vector<ValueId> read = operands(node);
    const std::vector<ValueId> made = results(node);
    const bool is_cheap = rule != nullptr && !is_heavy(rule->kind) && !is_random(node);
    const bool makes_symbol = std::any_of(node.outputs.begin(), node.outputs.end(),
                                          [](const NodeOutput& o) { return !o.symbol.empty(); });
    const bool is_unwritten = std::none_of(made.begin(), made.end(), [&](ValueId id) {
      return is_memory_written[roots[id.value].value];
    });
    const bool reads_free_only =
        std::all_of(read.begin(), read.end(), [&](ValueId id) { return is_free[id.value]; });
    const bool is_one = is_cheap && !makes_symbol && is_unwritten && reads_free_only;
    for (ValueId id : made) is_free[id.value] = is_one;
    is_replicated.push_back(is_one);
  }
  return is_replicated;
}

// Forbids the cuts first+1 .. last: nodes first .. last stay together.
struct Interval {
  int32_t first;
  int32_t last;
  std::string why;
};

std::vector<Interval> memory_intervals(const Graph& graph, const std::vector<ValueId>& roots) {
  const auto num_values = static_cast<int32_t>(graph.values.size());
  std::vector<int32_t> first_touch(num_values, -1);
  std::vector<int32_t> last_touch(num_values, -1);
  std::vector<int32_t> last_write(num_values, -1);
  std::vector<bool> is_input(num_values, false);
  for (const GraphInput& input : graph.inputs) is_input[roots[input.value.value].value] = true;
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[i];
    std::vector<ValueId> touched = operands(node);
    const std::vector<ValueId> made = results(node);
    touched.insert(touched.end(), made.begin(), made.end());
    for (ValueId id : touched) {
      const int32_t root = roots[id.value].value;
      if (first_touch[root] < 0) first_touch[root] = i;
      last_touch[root] = i;
    }
    for (ValueId id : written_values(node)) last_write[roots[id.value].value] = i;
  }
  std::vector<Interval> intervals;
  for (int32_t root = 0; root < num_values; ++root) {
    if (last_write[root] < 0) continue;
    // Memory of an input is not sent: whoever reads it after a write must be where the write is.
    const int32_t last = is_input[root] ? last_touch[root] : last_write[root];
    intervals.push_back({first_touch[root], last,
                         fmt::format("{} changes %{} in place", graph.nodes[last_write[root]].op,
                                     graph.values[root].name)});
  }
  return intervals;
}

std::vector<Interval> symbol_intervals(const Graph& graph) {
  std::map<std::string, Interval> intervals;
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[i];
    std::set<std::string> read = symbols_read(node);
    std::vector<ValueId> touched = operands(node);
    const std::vector<ValueId> made = results(node);
    touched.insert(touched.end(), made.begin(), made.end());
    for (ValueId id : touched) {
      for (const SymExpr& size : graph.values[id.value].type.sizes) collect_symbols(size, read);
    }
    for (const std::string& symbol : read) {
      const auto [entry, is_new] = intervals.try_emplace(
          symbol, Interval{i, i, fmt::format("the data decides the size {}", symbol)});
      entry->second.last = i;
    }
  }
  std::set<std::string> bound;
  for (const GraphInput& input : graph.inputs) {
    for (const SymExpr& size : graph.values[input.value.value].type.sizes) {
      collect_symbols(size, bound);
    }
  }
  std::vector<Interval> result;
  for (auto& [symbol, interval] : intervals) {
    if (!bound.contains(symbol)) result.push_back(std::move(interval));
  }
  return result;
}

Status count_live_bytes(const Graph& graph, const SymbolValues& symbols, CutAnalysis& cuts) {
  const auto num_nodes = static_cast<int32_t>(graph.nodes.size());
  std::vector<int32_t> made_at(graph.values.size(), -1);
  std::vector<int32_t> last_read(graph.values.size(), -1);
  for (int32_t i = 0; i < num_nodes; ++i) {
    for (ValueId id : operands(graph.nodes[i])) last_read[id.value] = i;
    if (cuts.is_replicated[i]) continue;
    for (ValueId id : results(graph.nodes[i])) made_at[id.value] = i;
  }
  last_read[graph.loss.value] = num_nodes;
  if (const auto* items = std::get_if<ValueId>(&graph.items)) last_read[items->value] = num_nodes;
  std::vector<int64_t> change(num_nodes + 2, 0);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (made_at[v] < 0 || last_read[v] <= made_at[v]) continue;
    const Result<int64_t> bytes = value_bytes(graph, ValueId(static_cast<int64_t>(v)), symbols);
    if (!bytes.ok()) continue;  // a size that the data decides: the cut is illegal anyway
    change[made_at[v] + 1] += bytes.value();
    change[last_read[v] + 1] -= bytes.value();
  }
  int64_t live = 0;
  for (int32_t p = 0; p <= num_nodes; ++p) {
    live += change[p];
    cuts.live_bytes.push_back(live);
  }
  return Status();
}

}  // namespace

SymbolValues example_symbols(const Graph& graph, int64_t batch) {
  SymbolValues symbols = graph.symbol_hints;
  if (const std::optional<std::string> symbol = batch_symbol(graph)) symbols[*symbol] = batch;
  return symbols;
}

Result<CutAnalysis> analyze_cuts(const Graph& graph, const SymbolValues& symbols) {
  const std::vector<ValueId> roots = alias_roots(graph);
  const auto num_nodes = static_cast<int32_t>(graph.nodes.size());
  CutAnalysis cuts;
  cuts.is_replicated = find_replicated(graph, roots);
  cuts.why_illegal.assign(num_nodes + 1, "");
  std::vector<Interval> intervals = memory_intervals(graph, roots);
  for (Interval& interval : symbol_intervals(graph)) intervals.push_back(std::move(interval));
  for (const Interval& interval : intervals) {
    for (int32_t p = interval.first + 1; p <= interval.last; ++p)
      cuts.why_illegal[p] = interval.why;
  }
  cuts.is_legal.resize(num_nodes + 1);
  // A stage owns at least one node that is not replicated.
  int32_t first_owned = 0;
  while (first_owned < num_nodes && cuts.is_replicated[first_owned]) ++first_owned;
  for (int32_t p = 0; p <= num_nodes; ++p) {
    if (p <= first_owned) cuts.why_illegal[p] = "nothing comes before it";
    cuts.is_legal[p] = p < num_nodes && cuts.why_illegal[p].empty();
  }
  TRIREME_TRY(count_live_bytes(graph, symbols, cuts));
  cuts.flops_before.push_back(0);
  for (const Node& node : graph.nodes) {
    const Result<double> flops = node_flops(graph, node, symbols);
    cuts.flops_before.push_back(cuts.flops_before.back() + (flops.ok() ? flops.value() : 0));
  }
  return cuts;
}

std::vector<bool> carries_gradient(const Graph& graph) {
  const std::vector<ValueId> roots = alias_roots(graph);
  std::vector<bool> carries(graph.values.size(), false);
  for (const GraphInput& input : graph.inputs) carries[input.value.value] = input.requires_grad;
  // They read a tensor for its shape, or on purpose without its gradient.
  constexpr std::array<std::string_view, 13> kStops = {
      "detach",   "detach_",   "zeros_like", "ones_like", "empty_like", "full_like",   "new_zeros",
      "new_ones", "new_empty", "new_full",   "rand_like", "randn_like", "randint_like"};
  for (const Node& node : graph.nodes) {
    if (!is_grad_enabled(graph, node.region)) continue;
    if (std::find(kStops.begin(), kStops.end(), base_name(node.op)) != kStops.end()) continue;
    const std::vector<ValueId> read = operands(node);
    if (std::none_of(read.begin(), read.end(), [&](ValueId id) { return carries[id.value]; })) {
      continue;
    }
    for (ValueId id : results(node)) {
      carries[id.value] = dtype_info(graph.values[id.value].type.dtype).is_floating;
    }
    // What was written in place carries the gradient of what was written.
    for (ValueId written : written_values(node)) {
      for (size_t v = 0; v < carries.size(); ++v) {
        if (roots[v] == roots[written.value]) {
          carries[v] = carries[v] || dtype_info(graph.values[v].type.dtype).is_floating;
        }
      }
    }
  }
  // Buffers and user inputs are no leaves, whatever is written into them.
  for (const GraphInput& input : graph.inputs) carries[input.value.value] = input.requires_grad;
  return carries;
}

namespace {

// Modules that no other module of the graph lies in.
std::set<std::string_view> leaf_modules(const Graph& graph) {
  std::set<std::string_view> modules;
  for (const Node& node : graph.nodes) {
    if (!node.module.empty()) modules.insert(node.module);
  }
  std::set<std::string_view> leaves = modules;
  for (std::string_view module : modules) {
    for (size_t dot = module.rfind('.'); dot != std::string_view::npos; dot = module.rfind('.')) {
      module = module.substr(0, dot);
      leaves.erase(module);
    }
  }
  return leaves;
}

// inside[p]: the owned nodes on both sides of cut p belong to one leaf module.
std::vector<bool> cuts_inside_leaves(const Graph& graph, const CutAnalysis& cuts) {
  const std::set<std::string_view> leaves = leaf_modules(graph);
  std::vector<bool> inside(cuts.is_legal.size(), false);
  std::string_view before;
  for (size_t p = 0; p < graph.nodes.size(); ++p) {
    if (cuts.is_replicated[p]) continue;
    const std::string_view module = graph.nodes[p].module;
    inside[p] = module == before && leaves.contains(module);
    before = module;
  }
  return inside;
}

}  // namespace

std::vector<int32_t> block_cuts(const Graph& graph, const CutAnalysis& cuts, BlockGrain grain) {
  std::vector<bool> is_left_out(cuts.is_legal.size(), false);
  if (grain == BlockGrain::kModules) is_left_out = cuts_inside_leaves(graph, cuts);
  std::vector<int32_t> positions;
  const auto end = static_cast<int32_t>(cuts.live_bytes.size()) - 1;
  int32_t p = 1;
  while (p < end) {
    // A plateau p .. q of equal live bytes, as in a chain of layers of one width.
    int32_t q = p;
    while (q + 1 < end && cuts.live_bytes[q + 1] == cuts.live_bytes[p]) ++q;
    const bool falls_to = p == 1 || cuts.live_bytes[p - 1] > cuts.live_bytes[p];
    const bool rises_after = q + 1 >= end || cuts.live_bytes[q + 1] > cuts.live_bytes[p];
    if (falls_to && rises_after && cuts.live_bytes[p] > 0) {
      for (int32_t r = p; r <= q; ++r) {
        if (cuts.is_legal[r] && !cuts.is_replicated[r] && !is_left_out[r]) positions.push_back(r);
      }
    }
    p = q + 1;
  }
  return positions;
}

}  // namespace trireme
