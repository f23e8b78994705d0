#include "trireme/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "trireme/base/json_text.h"
#include "trireme/graph/loss_items.h"
#include "trireme/graph/op_cost.h"

namespace trireme {
namespace {

// The name of the first value that node `index` makes, or of the one after it that makes one.
std::string node_name(const Graph& graph, int32_t index) {
  for (size_t i = static_cast<size_t>(index); i < graph.nodes.size(); ++i) {
    const std::vector<ValueId> made = results(graph.nodes[i]);
    if (!made.empty()) return graph.values[made[0].value].name;
  }
  return "";
}

Result<int32_t> find_node(const Graph& graph, std::string_view name) {
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    for (ValueId id : results(graph.nodes[i])) {
      if (graph.values[id.value].name == name) return i;
    }
  }
  return Error{
      fmt::format("the plan names the node {}, which the model does not have; make the "
                  "plan again with trireme plan",
                  name)};
}

bool is_in_module(std::string_view module, std::string_view name) {
  return module == name ||
         (module.size() > name.size() && module.starts_with(name) && module[name.size()] == '.');
}

// The module's first own node. `name` may leave out leading parts of the module's name.
Result<int32_t> find_module(const Graph& graph, const CutAnalysis& cuts, const std::string& name) {
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    if (cuts.is_replicated[i]) continue;
    std::string_view module = graph.nodes[i].module;
    while (!module.empty()) {
      if (is_in_module(module, name)) return i;
      const size_t dot = module.find('.');
      module = dot == std::string_view::npos ? std::string_view() : module.substr(dot + 1);
    }
  }
  return Error{
      fmt::format("--cut names the module '{}', which the model does not have; trireme inspect "
                  "lists those it can be cut before",
                  name)};
}

// "--pp 2", or "--pp 2 with 2 chunks".
std::string stages_asked_for(int32_t pp, int32_t chunks) {
  return chunks == 1 ? fmt::format("--pp {}", pp)
                     : fmt::format("--pp {} with {} chunks", pp, chunks);
}

Result<std::vector<int32_t>> cuts_by_name(const Graph& graph, const CutAnalysis& cuts,
                                          const PlanOptions& options) {
  const int32_t num_cuts = options.pp * options.chunks - 1;
  if (static_cast<int32_t>(options.cut_modules.size()) != num_cuts) {
    return Error{fmt::format("--cut names {} {}, but {} needs {}", options.cut_modules.size(),
                             options.cut_modules.size() == 1 ? "module" : "modules",
                             stages_asked_for(options.pp, options.chunks), num_cuts)};
  }
  std::vector<int32_t> positions;
  for (const std::string& name : options.cut_modules) {
    TRIREME_TRY(int32_t position, find_module(graph, cuts, name));
    if (!cuts.is_legal[position]) {
      return Error{fmt::format("the model cannot be cut before module '{}': {}", name,
                               cuts.why_illegal[position])};
    }
    if (!positions.empty() && position <= positions.back()) {
      return Error{fmt::format("--cut names '{}' after a module that runs later", name)};
    }
    positions.push_back(position);
  }
  return positions;
}

// Dynamic programming over candidate cuts. costs of a stage: its flops; of a cut: its bytes.
class StageSearch {
 public:
  StageSearch(const CutAnalysis& cuts, std::vector<int32_t> candidates, int32_t pp)
      : cuts_(cuts), positions_(std::move(candidates)), pp_(pp) {
    positions_.insert(positions_.begin(), 0);
    positions_.push_back(static_cast<int32_t>(cuts.flops_before.size()) - 1);
  }

  [[nodiscard]] std::vector<int32_t> run() const {
    const double bottleneck = smallest_bottleneck();
    return fewest_bytes(bottleneck * 1.02 + 1e-9);
  }

 private:
  [[nodiscard]] double flops(size_t from, size_t to) const {
    return cuts_.flops_before[positions_[to]] - cuts_.flops_before[positions_[from]];
  }

  [[nodiscard]] double smallest_bottleneck() const {
    const size_t n = positions_.size();
    const double infinity = std::numeric_limits<double>::infinity();
    std::vector<double> best(n, infinity);
    best[0] = 0;
    for (int32_t stage = 0; stage < pp_; ++stage) {
      std::vector<double> next(n, infinity);
      for (size_t to = 1; to < n; ++to) {
        for (size_t from = 0; from < to; ++from) {
          next[to] = std::min(next[to], std::max(best[from], flops(from, to)));
        }
      }
      best = std::move(next);
    }
    return best[n - 1];
  }

  [[nodiscard]] std::vector<int32_t> fewest_bytes(double limit) const {
    const size_t n = positions_.size();
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    std::vector<std::vector<int64_t>> bytes(pp_ + 1, std::vector<int64_t>(n, kNone));
    std::vector<std::vector<size_t>> previous(pp_ + 1, std::vector<size_t>(n, 0));
    bytes[0][0] = 0;
    for (int32_t stage = 1; stage <= pp_; ++stage) {
      for (size_t to = 1; to < n; ++to) {
        for (size_t from = 0; from < to; ++from) {
          if (bytes[stage - 1][from] == kNone || flops(from, to) > limit) continue;
          const int64_t cost =
              bytes[stage - 1][from] + (to + 1 < n ? cuts_.live_bytes[positions_[to]] : 0);
          if (cost >= bytes[stage][to]) continue;
          bytes[stage][to] = cost;
          previous[stage][to] = from;
        }
      }
    }
    std::vector<int32_t> result;
    size_t at = n - 1;
    for (int32_t stage = pp_; stage > 1; --stage) {
      at = previous[stage][at];
      result.insert(result.begin(), positions_[at]);
    }
    return result;
  }

  const CutAnalysis& cuts_;
  std::vector<int32_t> positions_;
  int32_t pp_;
};

Result<std::vector<int32_t>> choose_cuts(const Graph& graph, const CutAnalysis& cuts,
                                         const PlanOptions& options) {
  const int32_t num_cuts = options.pp * options.chunks - 1;
  std::vector<int32_t> candidates = block_cuts(graph, cuts, BlockGrain::kModules);
  if (static_cast<int32_t>(candidates.size()) < num_cuts) {
    candidates = block_cuts(graph, cuts, BlockGrain::kOperators);
  }
  if (static_cast<int32_t>(candidates.size()) < num_cuts) {
    // Too few blocks: every legal place between two nodes that some stage owns.
    candidates.clear();
    for (int32_t p = 1; p + 1 < static_cast<int32_t>(cuts.is_legal.size()); ++p) {
      if (cuts.is_legal[p] && !cuts.is_replicated[p]) candidates.push_back(p);
    }
  }
  if (static_cast<int32_t>(candidates.size()) < num_cuts) {
    return Error{fmt::format("the model can be cut at {} places, which makes {} {}stages, not {}",
                             candidates.size(), candidates.size() + 1,
                             options.chunks == 1 ? "" : "virtual ",
                             stages_asked_for(options.pp, options.chunks))};
  }
  return StageSearch(cuts, std::move(candidates), num_cuts + 1).run();
}

int64_t boundary_bytes(const Graph& graph, const std::vector<BoundaryValue>& values,
                       const SymbolValues& symbols, int64_t batch) {
  int64_t bytes = 0;
  for (const BoundaryValue& boundary : values) {
    const Result<int64_t> value = value_bytes(graph, boundary.value, symbols);
    if (value.ok()) bytes += value.value();
  }
  return (bytes + batch - 1) / batch;
}

PlanStage describe_stage(const Graph& graph, const CutAnalysis& cuts, const VirtualStage& stage,
                         int32_t first, int32_t end, const SymbolValues& symbols, int64_t batch) {
  PlanStage description{.first_node = node_name(graph, first)};
  for (int32_t i = first; i < end; ++i) {
    const std::string& module = graph.nodes[i].module;
    if (cuts.is_replicated[i] || module.empty()) continue;
    if (description.first_module.empty()) description.first_module = module;
    description.last_module = module;
  }
  for (const int32_t index : stage.inputs) {
    const GraphInput& input = graph.inputs[index];
    if (input.kind == GraphInput::Kind::kUser) description.inputs.push_back(input.names[0]);
    if (input.kind != GraphInput::Kind::kParameter) continue;
    const std::vector<SymExpr>& sizes = graph.values[input.value.value].type.sizes;
    const Result<std::vector<int64_t>> concrete = concrete_sizes(sizes, {});
    int64_t count = concrete.ok() ? 1 : 0;
    if (concrete.ok()) {
      for (const int64_t size : concrete.value()) count *= size;
    }
    description.num_parameters += count;
  }
  const double total = cuts.flops_before.back();
  if (total > 0) {
    description.flops_share = (cuts.flops_before[end] - cuts.flops_before[first]) / total;
    // As it is written, so that a plan read back is the same plan.
    description.flops_share = std::round(description.flops_share * 1e4) / 1e4;
  }
  description.bytes_in = boundary_bytes(graph, stage.receives, symbols, batch);
  description.bytes_out = boundary_bytes(graph, stage.sends, symbols, batch);
  return description;
}

constexpr int64_t kExampleBatch = 8;  // a sample's bytes and flops are an eighth of this batch's

}  // namespace

Result<std::vector<int32_t>> cuts_of(const Plan& plan, const Graph& graph) {
  std::vector<int32_t> positions;
  for (size_t i = 1; i < plan.stages.size(); ++i) {
    TRIREME_TRY(int32_t position, find_node(graph, plan.stages[i].first_node));
    positions.push_back(position);
  }
  return positions;
}

Result<Plan> build_plan(const Graph& graph, const std::string& model_path,
                        const PlanOptions& options) {
  if (options.pp < 1 || options.dp < 1 || options.micro_batches < 1) {
    return Error{fmt::format("--pp {}, --dp {} and --micro-batches {} must be at least 1",
                             options.pp, options.dp, options.micro_batches)};
  }
  if (int64_t{options.pp} * options.dp > kMaxRanks) {
    return Error{fmt::format("--pp {} x --dp {} are {} ranks, more than {}", options.pp, options.dp,
                             int64_t{options.pp} * options.dp, kMaxRanks)};
  }
  if (options.chunks < 1 || options.chunks > kMaxPlanChunks) {
    return Error{fmt::format("{} chunks a stage are not 1 .. {}", options.chunks, kMaxPlanChunks)};
  }
  const SymbolValues symbols = example_symbols(graph, kExampleBatch);
  TRIREME_TRY(CutAnalysis cuts, analyze_cuts(graph, symbols));
  std::vector<int32_t> positions;
  if (!options.cut_modules.empty()) {
    TRIREME_TRY(positions, cuts_by_name(graph, cuts, options));
  } else {
    TRIREME_TRY(positions, choose_cuts(graph, cuts, options));
  }
  Plan plan{.model = as_utf8(model_path),
            .num_nodes = num_model_nodes(graph),
            .pp = options.pp,
            .dp = options.dp,
            .micro_batches = options.micro_batches,
            .schedule = options.schedule,
            .chunks = options.chunks,
            .placement = options.placement,
            .communication = options.communication,
            .order = options.order,
            .bucket_bytes = options.bucket_bytes,
            .sparse = options.sparse,
            .extra_warm_ups = options.extra_warm_ups,
            .stages = {}};
  const Partition partition =
      partition_graph(graph, cuts.is_replicated, positions, options.pp, options.placement);
  for (size_t v = 0; v < partition.virtual_stages.size(); ++v) {
    const int32_t first = v == 0 ? 0 : positions[v - 1];
    const int32_t end =
        v == positions.size() ? static_cast<int32_t>(graph.nodes.size()) : positions[v];
    plan.stages.push_back(describe_stage(graph, cuts, partition.virtual_stages[v], first, end,
                                         symbols, kExampleBatch));
  }
  return plan;
}

Status verify_plan(const Plan& plan, const Graph& graph) {
  if (plan.pp < 1 || plan.dp < 1 || plan.micro_batches < 1) {
    return Error{fmt::format("the plan has pp {}, dp {} and micro_batches {}; each is at least 1",
                             plan.pp, plan.dp, plan.micro_batches)};
  }
  if (int64_t{plan.pp} * plan.dp > kMaxRanks) {
    return Error{
        fmt::format("the plan has {} x {} ranks, more than {}", plan.pp, plan.dp, kMaxRanks)};
  }
  if (plan.chunks < 1 || plan.chunks > kMaxPlanChunks) {
    return Error{
        fmt::format("the plan has {} chunks a stage, not 1 .. {}", plan.chunks, kMaxPlanChunks)};
  }
  if (plan.bucket_bytes < 1) {
    return Error{fmt::format("the plan has buckets of {} bytes; a bucket has at least 1",
                             plan.bucket_bytes)};
  }
  if (static_cast<int64_t>(plan.stages.size()) != int64_t{plan.pp} * plan.chunks) {
    return Error{
        plan.chunks == 1
            ? fmt::format("the plan has {} stages but says pp {}", plan.stages.size(), plan.pp)
            : fmt::format("the plan has {} stages but says pp {} and chunks {}", plan.stages.size(),
                          plan.pp, plan.chunks)};
  }
  if (const int64_t num_nodes = num_model_nodes(graph); plan.num_nodes != num_nodes) {
    return Error{
        fmt::format("the plan is for a model of {} nodes, not {}; make it again with "
                    "trireme plan",
                    plan.num_nodes, num_nodes)};
  }
  TRIREME_TRY(std::vector<int32_t> positions, cuts_of(plan, graph));
  TRIREME_TRY(CutAnalysis cuts, analyze_cuts(graph, example_symbols(graph, kExampleBatch)));
  int32_t previous = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] <= previous) {
      return Error{fmt::format("stage {} of the plan does not begin after stage {}", i + 1, i)};
    }
    previous = positions[i];
    if (!cuts.is_legal[positions[i]]) {
      return Error{fmt::format("stage {} of the plan cannot begin at {}: {}", i + 1,
                               plan.stages[i + 1].first_node, cuts.why_illegal[positions[i]])};
    }
  }
  return Status();
}

Result<Partition> partition_by_plan(const Plan& plan, const Graph& graph) {
  TRIREME_TRY(std::vector<int32_t> positions, cuts_of(plan, graph));
  TRIREME_TRY(CutAnalysis cuts, analyze_cuts(graph, example_symbols(graph, kExampleBatch)));
  return partition_graph(graph, cuts.is_replicated, positions, plan.pp, plan.placement);
}

BucketOptions bucket_options(const Graph& graph, const Plan& plan, const Partition& partition,
                             int64_t step_samples) {
  return {
      .bytes = plan.bucket_bytes,
      .tied = tied_inputs(partition),
      .row_tables = inputs_of(choose_row_tables(
          graph, partition, {.choice = plan.sparse, .step_samples = step_samples, .dp = plan.dp}))};
}

}  // namespace trireme
