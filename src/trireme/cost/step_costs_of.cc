#include "trireme/cost/step_costs_of.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/json_text.h"
#include "trireme/cost/graph_work.h"
#include "trireme/cost/pass_memory.h"
#include "trireme/cost/saved_values.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/loss_items.h"
#include "trireme/graph/op_cost.h"
#include "trireme/plan/gradients.h"

namespace trireme {
namespace {

std::vector<NodeId> nodes_between(int32_t begin, int32_t end) {
  std::vector<NodeId> nodes;
  for (int32_t node = begin; node < end; ++node) nodes.emplace_back(node);
  return nodes;
}

// Parameters with a gradient that these nodes read.
std::vector<int32_t> trained_inputs(const Graph& graph, const std::vector<bool>& gets,
                                    std::span<const NodeId> nodes) {
  std::set<ValueId> read;
  for (const NodeId node : nodes) {
    for (const ValueId value : operands(graph.nodes[node.value])) read.insert(value);
  }
  std::vector<int32_t> inputs;
  for (int32_t i = 0; i < static_cast<int32_t>(graph.inputs.size()); ++i) {
    if (gets[i] && read.contains(graph.inputs[i].value)) inputs.push_back(i);
  }
  return inputs;
}

int64_t accumulator_bytes(const Graph& graph, int32_t input) {
  const TensorType& type = graph.values[graph.inputs[input].value.value].type;
  const Result<int64_t> bytes = value_bytes(graph, graph.inputs[input].value, {});
  if (!bytes.ok()) return 0;
  return bytes.value() / dtype_info(type.dtype).size_bytes *
         dtype_info(accumulator_dtype(type.dtype)).size_bytes;
}

// Of the node, or of the first one after it that makes a value.
std::string first_value_name(const Graph& graph, int32_t begin) {
  for (auto i = static_cast<size_t>(begin); i < graph.nodes.size(); ++i) {
    const std::vector<ValueId> made = results(graph.nodes[i]);
    if (!made.empty()) return graph.values[made[0].value].name;
  }
  return "";
}

// What all virtual stages are costed with.
class StageCosting {
 public:
  StageCosting(const Graph& graph, const Plan& plan, int64_t micro_batch,
               const AnalyticOptions& options, Profile profile, std::vector<int32_t> starts)
      : graph_(graph),
        plan_(plan),
        micro_batch_(micro_batch),
        options_(options),
        profile_(std::move(profile)),
        symbols_(example_symbols(graph, micro_batch)),
        saved_(graph, symbols_),
        works_(graph_work(graph, symbols_, saved_)),
        gets_(gets_gradient(graph)) {
    starts.push_back(static_cast<int32_t>(graph.nodes.size()));
    for (size_t b = 0; b + 1 < starts.size(); ++b) {
      blocks_.push_back(nodes_between(starts[b], starts[b + 1]));
    }
  }

  [[nodiscard]] Result<StepCosts> run() const {
    TRIREME_TRY(const Partition partition, partition_by_plan(plan_, graph_));
    StepCosts costs;
    for (const Stage& stage : partition.stages) {
      TRIREME_TRY(StageCosts of_stage, stage_costs(partition, stage));
      costs.stages.push_back(std::move(of_stage));
    }
    for (const Partition::TiedParameter& tied : partition.tied) {
      if (gets_[tied.input]) costs.tied_bytes.push_back(accumulator_bytes(graph_, tied.input));
    }
    // Loss and items of each micro-batch of all replicas.
    costs.scalar_bytes = int64_t{16} * plan_.dp * plan_.micro_batches;
    TRIREME_TRY(verify_step_costs(costs));
    return costs;
  }

  [[nodiscard]] Result<StepLayers> layers() const {
    TRIREME_TRY(const Partition partition, partition_by_plan(plan_, graph_));
    const std::vector<RowTable> tables = row_tables(partition);
    StepLayers layers;
    for (const Stage& stage : partition.stages) {
      std::set<int32_t> seen;
      std::vector<std::vector<LayerCosts>>& chunks = layers.emplace_back();
      for (const int32_t index : stage.virtual_stages) {
        chunks.push_back(block_costs(partition.virtual_stages[index], tables, seen));
      }
    }
    return layers;
  }

 private:
  // The blocks of a virtual stage that it runs; `seen` are the parameters of its stage before it.
  [[nodiscard]] std::vector<LayerCosts> block_costs(const VirtualStage& stage,
                                                    std::span<const RowTable> tables,
                                                    std::set<int32_t>& seen) const {
    std::vector<LayerCosts> layers;
    const std::vector<std::vector<NodeId>> parts = by_block(stage.nodes);
    for (size_t b = 0; b < parts.size(); ++b) {
      if (parts[b].empty()) continue;
      std::vector<std::vector<NodeId>> alone(parts.size());
      alone[b] = parts[b];
      LayerCosts& layer = layers.emplace_back();
      layer.forward = pass_time(BlockPass::kForward, alone);
      layer.backward = pass_time(BlockPass::kBackward, alone);
      for (const int32_t input : trained_inputs(graph_, gets_, parts[b])) {
        if (seen.insert(input).second) layer.gradient_bytes += summed_bytes(tables, input);
      }
    }
    return layers;
  }

  [[nodiscard]] Result<StageCosts> stage_costs(const Partition& partition,
                                               const Stage& stage) const {
    StageCosts costs;
    for (const int32_t index : stage.virtual_stages) {
      costs.chunks.push_back(chunk_costs(partition.virtual_stages[index]));
    }
    costs.update = step_cost_time(update_seconds(stage));
    costs.static_bytes = static_bytes(graph_, stage, options_.num_optimizer_states);
    if (plan_.dp == 1) return costs;
    const std::vector<RowTable> tables = row_tables(partition);
    BucketOptions buckets{.bytes = plan_.bucket_bytes, .tied = tied_inputs(partition)};
    buckets.row_tables = inputs_of(tables);
    double id_bytes = 0;
    for (const GradientBucket& bucket : gradient_buckets(graph_, stage, buckets)) {
      if (bucket.is_row_table) {
        const RowTable& table = *std::ranges::find(tables, bucket.inputs[0], &RowTable::input);
        id_bytes += static_cast<double>(kRowIdBytes) * table.ids;
        costs.rows.table_bytes.push_back(
            step_cost_bytes(std::ceil(table.rows) * static_cast<double>(table.row_bytes)));
        continue;
      }
      int64_t bytes = 0;
      for (const int32_t input : bucket.inputs) bytes += accumulator_bytes(graph_, input);
      costs.bucket_bytes.push_back(bytes);
      for (size_t chunk = 0; chunk < costs.chunks.size(); ++chunk) {
        costs.chunks[chunk].bucket_final.push_back(
            final_time(partition.virtual_stages[stage.virtual_stages[chunk]], bucket));
      }
    }
    costs.rows.id_bytes = step_cost_bytes(std::ceil(id_bytes));
    TRIREME_TRY(const std::vector<MovingBuffer> moving, moving_buffers(graph_, stage, plan_.dp));
    if (moving.empty()) return costs;
    int64_t bytes = 0;  // in float64
    for (const MovingBuffer& buffer : moving) {
      const ValueId value = graph_.inputs[buffer.input].value;
      bytes += saved_.bytes(value) / dtype_info(graph_.values[value.value].type.dtype).size_bytes *
               int64_t{8};
    }
    costs.bucket_bytes.push_back(bytes);
    return costs;
  }

  [[nodiscard]] std::vector<RowTable> row_tables(const Partition& partition) const {
    return choose_row_tables(graph_, partition,
                             {.choice = plan_.sparse,
                              .step_samples = micro_batch_ * plan_.micro_batches * plan_.dp,
                              .dp = plan_.dp});
  }

  // What a step sums of the parameter's gradient.
  [[nodiscard]] int64_t summed_bytes(std::span<const RowTable> tables, int32_t input) const {
    const auto table = std::ranges::find(tables, input, &RowTable::input);
    return table == tables.end() ? accumulator_bytes(graph_, input)
                                 : step_cost_bytes(std::ceil(table->row_exchange_bytes()));
  }

  // The nodes of a virtual stage by the block that they lie in.
  [[nodiscard]] std::vector<std::vector<NodeId>> by_block(std::span<const NodeId> nodes) const {
    std::vector<std::vector<NodeId>> parts(blocks_.size());
    size_t block = 0;
    for (const NodeId node : nodes) {
      while (node > blocks_[block].back()) ++block;
      parts[block].push_back(node);
    }
    return parts;
  }

  // The part of a block's time that `part` of its nodes takes.
  [[nodiscard]] double share(BlockPass pass, size_t block, std::span<const NodeId> part) const {
    if (part.size() == blocks_[block].size()) return 1;
    const double whole = seconds_of(options_.device, works_, pass, blocks_[block]);
    if (whole > 0) return seconds_of(options_.device, works_, pass, part) / whole;
    return static_cast<double>(part.size()) / static_cast<double>(blocks_[block].size());
  }

  [[nodiscard]] SimTime pass_time(BlockPass pass,
                                  const std::vector<std::vector<NodeId>>& parts) const {
    double seconds = 0;
    for (size_t b = 0; b < parts.size(); ++b) {
      if (parts[b].empty()) continue;
      seconds +=
          seconds_at(profile_.blocks[b], pass, micro_batch_).value_or(0) * share(pass, b, parts[b]);
    }
    return step_cost_time(seconds);
  }

  // How much of a chunk's backward has run when it has passed the first node that reads a parameter
  // of the bucket; 0: there is none.
  [[nodiscard]] SimTime final_time(const VirtualStage& stage, const GradientBucket& bucket) const {
    const auto reads = [&](NodeId node) {
      return std::ranges::any_of(operands(graph_.nodes[node.value]), [&](ValueId value) {
        return std::ranges::any_of(
            bucket.inputs, [&](int32_t input) { return graph_.inputs[input].value == value; });
      });
    };
    const auto first = std::ranges::find_if(stage.nodes, reads);
    if (first == stage.nodes.end()) return 0;
    return std::max<SimTime>(1,
                             pass_time(BlockPass::kBackward, by_block({first, stage.nodes.end()})));
  }

  [[nodiscard]] ChunkCosts chunk_costs(const VirtualStage& stage) const {
    const std::vector<std::vector<NodeId>> parts = by_block(stage.nodes);
    ChunkCosts costs;
    costs.forward = pass_time(BlockPass::kForward, parts);
    costs.backward = pass_time(BlockPass::kBackward, parts);
    costs.input_gradient = pass_time(BlockPass::kInputGradient, parts);
    costs.weight_gradient = pass_time(BlockPass::kWeightGradient, parts);
    costs.recompute = pass_time(BlockPass::kRecompute, parts);
    for (const BoundaryValue& sent : stage.sends) {
      costs.activation_bytes += saved_.bytes(sent.value);
    }
    for (const BoundaryValue& received : stage.receives) {
      costs.kept_input_bytes += saved_.bytes(received.value);
      if (received.carries_gradient) costs.gradient_bytes += saved_.bytes(received.value);
    }
    const PassMemory memory = pass_memory(graph_, stage, saved_, works_);
    costs.kept_bytes = memory.kept_bytes;
    for (size_t b = 0; b < parts.size(); ++b) {
      if (parts[b].empty() || parts[b].size() != blocks_[b].size()) continue;
      const std::optional<double> known = kept_bytes_at(profile_.blocks[b], micro_batch_);
      if (!known.has_value()) continue;
      costs.kept_bytes += step_cost_bytes(*known) - saved_.kept_bytes(blocks_[b]);
    }
    costs.kept_bytes = std::max<int64_t>(costs.kept_bytes, 0);
    costs.deferred_bytes = memory.deferred_bytes;
    costs.transient_bytes = memory.transient_bytes;
    const int64_t correction = costs.kept_bytes - memory.kept_bytes;
    costs.forward_peak_bytes = std::max(memory.forward_peak_bytes + correction, costs.kept_bytes);
    costs.backward_peak_bytes = std::max(memory.backward_peak_bytes + correction, costs.kept_bytes);
    costs.split_peak_bytes = std::max(memory.split_peak_bytes + correction, costs.kept_bytes);
    return costs;
  }

  [[nodiscard]] double update_seconds(const Stage& stage) const {
    // Each parameter once, though several blocks or chunks may use it.
    const std::vector<std::vector<NodeId>> parts = by_block(stage.nodes);
    double seconds = 0;
    std::set<int32_t> updated;
    for (size_t b = 0; b < parts.size(); ++b) {
      const std::optional<PassSeconds>& update = profile_.blocks[b].update;
      if (parts[b].empty() || !update.has_value()) continue;
      std::vector<int32_t> here;
      for (const int32_t input : trained_inputs(graph_, gets_, parts[b])) {
        if (updated.insert(input).second) here.push_back(input);
      }
      const double whole = analytic_update(trained_inputs(graph_, gets_, blocks_[b]));
      if (whole > 0) seconds += update->seconds * analytic_update(here) / whole;
    }
    return seconds;
  }

  [[nodiscard]] double analytic_update(const std::vector<int32_t>& inputs) const {
    const OperatorWork work = update_work(graph_, inputs, options_.num_optimizer_states);
    return pass_seconds(options_.device, {&work, 1});
  }

  const Graph& graph_;
  const Plan& plan_;
  int64_t micro_batch_;
  const AnalyticOptions& options_;
  Profile profile_;
  SymbolValues symbols_;
  SavedValues saved_;
  std::vector<NodeWork> works_;
  std::vector<bool> gets_;
  std::vector<std::vector<NodeId>> blocks_;
};

}  // namespace

Result<std::vector<int32_t>> profile_blocks(const Graph& graph) {
  TRIREME_TRY(const CutAnalysis cuts, analyze_cuts(graph, example_symbols(graph, 1)));
  std::vector<int32_t> starts = block_cuts(graph, cuts);
  starts.insert(starts.begin(), 0);
  return starts;
}

Result<AnalyticOptions> analytic_options(const Graph& graph, const DeviceKind& kind,
                                         int32_t num_optimizer_states) {
  const auto parameter = std::ranges::find_if(
      graph.inputs, [](const GraphInput& input) { return input.requires_grad; });
  const DType dtype = parameter == graph.inputs.end()
                          ? DType::kFloat32
                          : graph.values[parameter->value.value].type.dtype;
  std::string_view name = "float32";
  if (dtype == DType::kFloat64) name = "float64";
  if (dtype == DType::kFloat16) name = "float16";
  if (dtype == DType::kBFloat16) name = "bfloat16";
  AnalyticOptions options{
      .device = {}, .device_name = kind.name, .num_optimizer_states = num_optimizer_states};
  TRIREME_TRY(options.device, device_model_of(kind, name));
  return options;
}

Result<Profile> analytic_profile(const Graph& graph, const std::string& model,
                                 const std::vector<int64_t>& micro_batches,
                                 const AnalyticOptions& options) {
  TRIREME_TRY(std::vector<int32_t> starts, profile_blocks(graph));
  Profile profile = {.model = as_utf8(model),
                     .num_nodes = num_model_nodes(graph),
                     .device = as_utf8(options.device_name),
                     .blocks = {}};
  const std::vector<bool> gets = gets_gradient(graph);
  starts.push_back(static_cast<int32_t>(graph.nodes.size()));
  std::vector<std::vector<NodeId>> blocks;
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    blocks.push_back(nodes_between(starts[b], starts[b + 1]));
    BlockProfile& block = profile.blocks.emplace_back();
    block.first_node = first_value_name(graph, starts[b]);
    block.first_module = graph.nodes[starts[b]].module;
    const std::vector<int32_t> inputs = trained_inputs(graph, gets, blocks.back());
    const OperatorWork work = update_work(graph, inputs, options.num_optimizer_states);
    block.update = PassSeconds{.seconds = pass_seconds(options.device, {&work, 1}),
                               .source = CostSource::kAnalytic};
  }
  for (const int64_t micro_batch : micro_batches) {
    const SymbolValues symbols = example_symbols(graph, micro_batch);
    const SavedValues saved(graph, symbols);
    const std::vector<NodeWork> works = graph_work(graph, symbols, saved);
    for (size_t b = 0; b < blocks.size(); ++b) {
      BlockSize& size = profile.blocks[b].sizes.emplace_back();
      size.micro_batch = micro_batch;
      for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
        size.passes[pass] = PassSeconds{
            .seconds = seconds_of(options.device, works, static_cast<BlockPass>(pass), blocks[b]),
            .source = CostSource::kAnalytic};
      }
      size.kept_bytes =
          KeptBytes{.bytes = saved.kept_bytes(blocks[b]), .source = CostSource::kAnalytic};
    }
  }
  return profile;
}

int64_t static_bytes(const Graph& graph, const Stage& stage, int32_t num_optimizer_states,
                     int32_t num_weight_versions) {
  const std::vector<bool> gets = gets_gradient(graph);
  int64_t sum = 0;
  for (const int32_t input : stage.inputs) {
    if (graph.inputs[input].kind == GraphInput::Kind::kUser) continue;
    const Result<int64_t> bytes = value_bytes(graph, graph.inputs[input].value, {});
    if (!bytes.ok()) continue;
    if (!gets[input]) {
      sum += bytes.value();
      continue;
    }
    sum += num_weight_versions * (bytes.value() + accumulator_bytes(graph, input)) +
           num_optimizer_states * bytes.value();
  }
  return sum;
}

namespace {

Result<Profile> known_profile(const Graph& graph, const Plan& plan, int64_t micro_batch,
                              const Profile* measured, const AnalyticOptions& options) {
  TRIREME_CHECK(micro_batch >= 1, "a micro-batch has samples");
  TRIREME_TRY(const Profile analytic, analytic_profile(graph, plan.model, {micro_batch}, options));
  return measured == nullptr ? Result(analytic) : fill_profile(*measured, analytic);
}

}  // namespace

Result<StepCosts> step_costs_of(const Graph& graph, const Plan& plan, int64_t micro_batch,
                                const Profile* measured, const AnalyticOptions& options) {
  TRIREME_TRY(Profile profile, known_profile(graph, plan, micro_batch, measured, options));
  TRIREME_TRY(std::vector<int32_t> starts, profile_blocks(graph));
  return StageCosting(graph, plan, micro_batch, options, std::move(profile), std::move(starts))
      .run();
}

Result<StepLayers> step_layers_of(const Graph& graph, const Plan& plan, int64_t micro_batch,
                                  const Profile* measured, const AnalyticOptions& options) {
  TRIREME_TRY(Profile profile, known_profile(graph, plan, micro_batch, measured, options));
  TRIREME_TRY(std::vector<int32_t> starts, profile_blocks(graph));
  return StageCosting(graph, plan, micro_batch, options, std::move(profile), std::move(starts))
      .layers();
}

}  // namespace trireme
