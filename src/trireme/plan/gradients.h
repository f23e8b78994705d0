// Which parameters get a gradient, and in which buckets a stage reduces them over its replicas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/partition.h"

namespace trireme {

// gets_gradient[i]: input i of the graph is a parameter from which a differentiable path leads to
// the loss. The others have no gradient (torch's None), whatever the data.
[[nodiscard]] std::vector<bool> gets_gradient(const Graph& graph);

// Accumulators are 64-bit where the parameter is, else 32-bit.
[[nodiscard]] DType accumulator_dtype(DType parameter);

struct GradientBucket {
  DType dtype = DType::kFloat32;  // of the accumulators
  std::vector<int32_t> inputs;    // parameters, as indices into Graph::inputs
  bool is_tied = false;           // other stages hold them, too
  bool is_row_table = false;      // one parameter, of whose gradient a few rows are summed
};

// Of the gradients that are summed at once. Larger ones waste less time on latencies, smaller ones
// leave earlier. Simulated steps of GPT-2 small on 10 Gb/s Ethernet are within half a hundredth of
// their shortest with these, for 2 to 8 replicas; with 25 MB within a hundredth.
inline constexpr int64_t kDefaultBucketBytes = 10'000'000;

struct BucketOptions {
  int64_t bytes = kDefaultBucketBytes;  // of a bucket, about
  std::vector<int32_t> tied = {};       // parameters that several stages hold, ascending
  std::vector<int32_t> row_tables =
      {};  // inputs that are summed row by row (row_tables.h), ascending
};

// Of a partition: its tied parameters.
[[nodiscard]] std::vector<int32_t> tied_inputs(const Partition& partition);

// The buckets of a stage: its parameters with a gradient, in the order in which a backward is done
// with them: that of a parameter is whole when the backward has passed the first node that reads
// it. Tied ones are in buckets of their own, which come after those; then one for each row table,
// in the order of Graph::inputs.
[[nodiscard]] std::vector<GradientBucket> gradient_buckets(const Graph& graph, const Stage& stage,
                                                           const BucketOptions& options);

// The buffers that the forward pass of a virtual stage changes, as indices into Graph::inputs,
// ascending.
[[nodiscard]] std::vector<int32_t> changed_buffers(const Graph& graph, const VirtualStage& stage);
// The same of parameters.
[[nodiscard]] std::vector<int32_t> changed_parameters(const Graph& graph,
                                                      const VirtualStage& stage);

// A moving average that batch_norm keeps in a buffer: x <- (1 - momentum) x + momentum s at every
// micro-batch; or, with momentum 0, a count that grows by a fixed number.
struct MovingBuffer {
  int32_t input = 0;  // index into Graph::inputs
  double momentum = 0;
  bool is_count = false;
};

// The moving averages and counts of a stage. Error: a buffer, or a parameter, that the forward pass
// changes in a way that replicas cannot combine, by name; only raised when `dp` > 1.
[[nodiscard]] Result<std::vector<MovingBuffer>> moving_buffers(const Graph& graph,
                                                               const Stage& stage, int32_t dp);

// One line for the user where micro-batches, those of a replica and step, change something else
// than moving averages and counts more often than one PyTorch process does; else empty.
[[nodiscard]] std::string note_on_micro_batches(const Graph& graph, int32_t num_micro_batches);

// What a stage sums over its replicas: its buckets, and one more when it keeps moving averages.
struct Reductions {
  int32_t num = 0;             // 0 for one replica
  int32_t num_tied = 0;        // the last of them, which come after the sums over stages
  int32_t num_row_tables = 0;  // besides them
};
// Error: see moving_buffers.
[[nodiscard]] Result<Reductions> reductions_of(const Graph& graph, const Stage& stage, int32_t dp,
                                               const BucketOptions& options);

}  // namespace trireme
