#include "trireme/cost/layer_costs.h"

#include <algorithm>

namespace trireme {

StepLayers step_layers_of_buckets(const StepCosts& costs) {
  StepLayers layers;
  for (const StageCosts& stage : costs.stages) {
    std::vector<std::vector<LayerCosts>>& chunks = layers.emplace_back();
    const auto num_chunks = static_cast<int64_t>(stage.chunks.size());
    for (const ChunkCosts& chunk : stage.chunks) {
      std::vector<LayerCosts>& of_chunk = chunks.emplace_back();
      for (const int64_t bytes : stage.bucket_bytes) {
        of_chunk.push_back({.gradient_bytes = bytes / num_chunks});
      }
      if (of_chunk.empty()) of_chunk.emplace_back();
      std::ranges::reverse(of_chunk);
      const auto num_layers = static_cast<int64_t>(of_chunk.size());
      for (LayerCosts& layer : of_chunk) {
        layer.forward = chunk.forward / num_layers;
        layer.backward = chunk.backward / num_layers;
      }
    }
  }
  return layers;
}

}  // namespace trireme
