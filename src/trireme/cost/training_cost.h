// step_seconds(): the time of one training step of a ModelSpec on dp x pp x tp devices, by formula.
//
// Ranks are counted tp first, then dp, then pp, as Megatron does: the devices of a layer are
// neighbours in a host. Every layer is recomputed in the backward pass. The pipeline runs 1F1B with
// a flush (Narayanan et al., arXiv 2104.04473, section 2.2): with stages of times t_i,
//
//   seconds = sum of t_i + (m - 1) max t_i + transfers + sum of gradients over dp + update
//
// where the first stage has the embedding as well, and the last one the head and the loss.
#pragma once

#include <cstdint>

#include "trireme/base/result.h"
#include "trireme/cost/collectives.h"
#include "trireme/cost/device_model.h"
#include "trireme/cost/model_spec.h"

namespace trireme {

struct TrainingLayout {
  int64_t dp = 1;
  int64_t pp = 1;
  int64_t tp = 1;
  int64_t micro_batch = 1;   // samples
  int64_t global_batch = 1;  // samples of a step
  bool operator==(const TrainingLayout&) const = default;
};

struct TrainingHosts {
  int64_t devices_per_host = 8;
  AlphaBeta inside;   // of a device, to others of its host; the latency is that of a collective
  AlphaBeta between;  // of a host, shared by its devices
  bool operator==(const TrainingHosts&) const = default;
};

struct TrainingStep {
  double layer_s = 0;      // forward, recomputation and backward of a micro-batch, sums included
  double embedding_s = 0;  // both passes of a micro-batch
  double head_s = 0;       // the same, with the loss
  double pipeline_s = 0;   // all micro-batches
  double reduction_s = 0;  // of gradients over dp
  double update_s = 0;
  double seconds = 0;  // of the step
};

// Divisibility of layers, heads, vocabulary and batch.
[[nodiscard]] Status verify_layout(const ModelSpec& spec, const TrainingLayout& layout);

// REQUIRES: a model and a layout that verify.
[[nodiscard]] TrainingStep training_step(const ModelSpec& spec, const TrainingLayout& layout,
                                         const DeviceModel& device, const TrainingHosts& hosts);

// Of a sum over the tp devices of a layer.
[[nodiscard]] double layer_sum_seconds(const TrainingLayout& layout, double bytes,
                                       const TrainingHosts& hosts);
// Of AdamW in mixed precision.
[[nodiscard]] double update_seconds(const DeviceModel& device, double parameters);

}  // namespace trireme
