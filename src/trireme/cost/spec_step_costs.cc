#include "trireme/cost/spec_step_costs.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trireme/cost/transformer_work.h"

namespace trireme {
namespace {

// The works that make gradients of weights, or all others.
std::vector<OperatorWork> chosen(const std::vector<OperatorWork>& works, bool of_weights) {
  std::vector<OperatorWork> result;
  for (const OperatorWork& work : works) {
    const bool is_of_weights = work.name.ends_with("_weight") || work.name == "accumulate";
    if (is_of_weights == of_weights) result.push_back(work);
  }
  return result;
}

class SpecCosting {
 public:
  SpecCosting(const ModelSpec& spec, const TrainingLayout& layout, int64_t layers,
              const DeviceModel& device, const TrainingHosts& hosts)
      : spec_(spec),
        layout_(layout),
        batch_{.micro_batch = layout.micro_batch, .tp = layout.tp},
        layers_(static_cast<double>(layers)),
        device_(device) {
    boundary_ = boundary_bytes(spec, batch_);
    sum_ = layer_sum_seconds(layout, boundary_, hosts);
    const int64_t vocab_part = padded_vocab(spec, layout.tp) / layout.tp;
    vocab_part_ = static_cast<double>(vocab_part);
    logits_ = 4 * static_cast<double>(layout.micro_batch * spec.seq) * vocab_part_;
  }

  [[nodiscard]] ChunkCosts chunk(bool is_first, bool is_last) const {
    const std::vector<OperatorWork> backward = layer_backward_work(spec_, batch_);
    double forward_s =
        layers_ * (pass_seconds(device_, layer_forward_work(spec_, batch_)) + 2 * sum_);
    double input_s = layers_ * (pass_seconds(device_, chosen(backward, false)) + 2 * sum_);
    double weight_s = layers_ * pass_seconds(device_, chosen(backward, true));
    double backward_s = layers_ * (pass_seconds(device_, backward) + 2 * sum_);
    if (is_first) {
      // Rows are read, and as many gradients added.
      const double half = (pass_seconds(device_, embedding_work(spec_, batch_)) + sum_) / 2;
      forward_s += half;
      weight_s += half;
      backward_s += half;
    }
    if (is_last) {
      // One product of three is in each of forward, input gradient and weight gradient.
      const double third = (pass_seconds(device_, head_work(spec_, batch_)) + sum_) / 3;
      forward_s += third;
      input_s += third;
      weight_s += third;
      backward_s += 2 * third;
    }
    // In units of s b h bytes.
    const double unit = boundary_ / 2;
    const auto tp = static_cast<double>(layout_.tp);
    const double scores = 5.0 * static_cast<double>(spec_.heads) * static_cast<double>(spec_.seq) /
                          static_cast<double>(spec_.hidden);
    double kept = layers_ * unit * (10 + (24 + scores) / tp);
    // Inputs of the four products and the gradients of their results.
    const double deferred = layers_ * unit * (8 + 24 / tp);
    if (is_last) kept += 4 * unit + logits_;
    return {.forward = step_cost_time(forward_s),
            .backward = step_cost_time(backward_s),
            .input_gradient = step_cost_time(input_s),
            .weight_gradient = step_cost_time(weight_s),
            .recompute = step_cost_time(forward_s),
            .activation_bytes = is_last ? 0 : step_cost_bytes(boundary_),
            .gradient_bytes = is_first ? 0 : step_cost_bytes(boundary_),
            .kept_bytes = step_cost_bytes(kept),
            .kept_input_bytes = is_first ? 0 : step_cost_bytes(boundary_),
            .deferred_bytes = step_cost_bytes(deferred),
            // The gradients of a layer's border, or of the logits.
            .transient_bytes = step_cost_bytes(2 * boundary_ + (is_last ? logits_ : 0))};
  }

  // Of one chunk.
  [[nodiscard]] double layer_parameters() const {
    const auto h = static_cast<double>(spec_.hidden);
    return layers_ * 12 * h * h / static_cast<double>(layout_.tp);
  }
  [[nodiscard]] double embedding_parameters() const {
    return vocab_part_ * static_cast<double>(spec_.hidden);
  }

 private:
  const ModelSpec& spec_;
  const TrainingLayout& layout_;
  ShardedBatch batch_;
  double layers_;
  const DeviceModel& device_;
  double boundary_ = 0;
  double sum_ = 0;
  double vocab_part_ = 0;  // tokens of the embedding on one device
  double logits_ = 0;
};

constexpr double kGradientBytes = 2;

}  // namespace

Result<StepCosts> step_costs_of_spec(const ModelSpec& spec, const TrainingLayout& layout,
                                     const SpecChunks& chunks, const DeviceModel& device,
                                     const TrainingHosts& hosts) {
  TRIREME_TRY(verify_layout(spec, layout));
  const int64_t pieces = layout.pp * chunks.chunks;
  if (spec.layers % pieces != 0) {
    return Error{fmt::format("{} layers do not divide into pp={} times {} chunks", spec.layers,
                             layout.pp, chunks.chunks)};
  }
  constexpr double kVersionBytes = 2 + kGradientBytes;
  constexpr double kOptimizerBytes = 12;
  const double state_bytes = chunks.num_weight_versions * kVersionBytes + kOptimizerBytes;
  const SpecCosting costing(spec, layout, spec.layers / pieces, device, hosts);
  StepCosts costs;
  const auto num_stages = static_cast<int32_t>(layout.pp);
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    StageCosts& of_stage = costs.stages.emplace_back();
    double parameters = 0;
    bool has_embedding = false;
    for (int32_t chunk = 0; chunk < chunks.chunks; ++chunk) {
      const int64_t piece = int64_t{chunk} * num_stages +
                            place_within_chunk(chunks.placement, num_stages, chunk, stage);
      of_stage.chunks.push_back(costing.chunk(piece == 0, piece == pieces - 1));
      parameters += costing.layer_parameters();
      has_embedding = has_embedding || piece == 0 || piece == pieces - 1;
    }
    if (has_embedding) parameters += costing.embedding_parameters();
    of_stage.update = step_cost_time(update_seconds(device, parameters));
    of_stage.static_bytes = step_cost_bytes(state_bytes * parameters);
    if (layout.dp > 1) of_stage.bucket_bytes = {step_cost_bytes(kGradientBytes * parameters)};
  }
  const bool is_tied =
      num_stages > 1 && !(chunks.placement == Placement::kV && chunks.chunks % 2 == 0);
  if (is_tied) {
    costs.tied_bytes = {step_cost_bytes(kGradientBytes * costing.embedding_parameters())};
  }
  costs.scalar_bytes = int64_t{16} * (layout.global_batch / layout.micro_batch);
  TRIREME_TRY(verify_step_costs(costs));
  return costs;
}

StepLayers step_layers_of_spec(const ModelSpec& spec, const TrainingLayout& layout,
                               const SpecChunks& chunks, const DeviceModel& device,
                               const TrainingHosts& hosts) {
  const auto num_stages = static_cast<int32_t>(layout.pp);
  const int64_t pieces = layout.pp * chunks.chunks;
  const SpecCosting costing(spec, layout, spec.layers / pieces, device, hosts);
  const ChunkCosts layer = SpecCosting(spec, layout, 1, device, hosts).chunk(false, false);
  const int64_t layer_bytes = step_cost_bytes(kGradientBytes * costing.layer_parameters() /
                                              static_cast<double>(spec.layers / pieces));
  const int64_t table_bytes = step_cost_bytes(kGradientBytes * costing.embedding_parameters());
  StepLayers layers(static_cast<size_t>(layout.pp));
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    bool has_embedding = false;
    for (int32_t chunk = 0; chunk < chunks.chunks; ++chunk) {
      const int64_t piece = int64_t{chunk} * num_stages +
                            place_within_chunk(chunks.placement, num_stages, chunk, stage);
      std::vector<LayerCosts> of_chunk(
          static_cast<size_t>(spec.layers / pieces),
          {.forward = layer.forward, .backward = layer.backward, .gradient_bytes = layer_bytes});
      const ChunkCosts first = costing.chunk(piece == 0, false);
      const ChunkCosts plain = costing.chunk(false, false);
      const ChunkCosts last = costing.chunk(false, piece == pieces - 1);
      of_chunk.front().forward += first.forward - plain.forward;
      of_chunk.front().backward += first.backward - plain.backward;
      of_chunk.back().forward += last.forward - plain.forward;
      of_chunk.back().backward += last.backward - plain.backward;
      const bool uses_table = piece == 0 || piece == pieces - 1;
      // The head alone has it where its backward begins.
      if (uses_table && !has_embedding) {
        (piece == 0 ? of_chunk.front() : of_chunk.back()).gradient_bytes += table_bytes;
      }
      has_embedding = has_embedding || uses_table;
      layers[static_cast<size_t>(stage)].push_back(std::move(of_chunk));
    }
  }
  return layers;
}

}  // namespace trireme
