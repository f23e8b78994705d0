#include "trireme/cost/training_cost.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "trireme/cost/transformer_work.h"

namespace trireme {
namespace {

constexpr int64_t kMost = int64_t{1} << 20;  // of each number of a layout

// A sum over neighbours: within a host, or through the network of the hosts. The devices of a host
// are neighbours in the ring, so that each host sends the bytes once.
double sum_seconds(int64_t members, double bytes, const TrainingHosts& hosts) {
  if (members <= 1) return 0;
  const bool is_inside = members <= hosts.devices_per_host;
  const double bandwidth = is_inside
                               ? hosts.inside.bytes_per_s
                               : std::min(hosts.inside.bytes_per_s, hosts.between.bytes_per_s);
  const auto n = static_cast<double>(members);
  // The latency is measured a collective: the library pipelines its messages.
  return hosts.inside.latency_s + 2 * (n - 1) / n * bytes / bandwidth;
}

// Over the replicas, whose rings, one for each of the tp devices, share the network of a host.
double replica_sum_seconds(const TrainingLayout& layout, double bytes, const TrainingHosts& hosts) {
  if (layout.dp <= 1) return 0;
  double bandwidth = hosts.inside.bytes_per_s;
  if (layout.tp * layout.dp > hosts.devices_per_host) {
    const auto sharing = static_cast<double>(std::min(layout.tp, hosts.devices_per_host));
    bandwidth = std::min(bandwidth, hosts.between.bytes_per_s / sharing);
  }
  return all_reduce_seconds(AllReduceFormula::kRing, layout.dp, bytes,
                            {.latency_s = 0, .bytes_per_s = bandwidth});
}

// The update reads weight and gradient, reads and writes three float32 numbers (weight and two
// moments of Adam), and scales and checks the gradient before.
constexpr double kUpdateBytes = 2 + 2 + 3 * 8 + 6;

}  // namespace

Status verify_layout(const ModelSpec& spec, const TrainingLayout& layout) {
  struct Entry {
    const char* name;
    int64_t value;
  };
  for (const Entry& entry : std::array{
           Entry{"dp", layout.dp}, Entry{"pp", layout.pp}, Entry{"tp", layout.tp},
           Entry{"micro_batch", layout.micro_batch}, Entry{"global_batch", layout.global_batch}}) {
    if (entry.value >= 1 && entry.value <= kMost) continue;
    return Error{fmt::format("{} is {}, not 1 to {}", entry.name, entry.value, kMost)};
  }
  if (spec.layers % layout.pp != 0) {
    return Error{fmt::format("{} layers do not divide into pp={}", spec.layers, layout.pp)};
  }
  if (spec.heads % layout.tp != 0) {
    return Error{fmt::format("{} heads do not divide into tp={}", spec.heads, layout.tp)};
  }
  if (layout.global_batch % (layout.micro_batch * layout.dp) == 0) return Status();
  return Error{fmt::format("global_batch={} is no multiple of micro_batch={} times dp={}",
                           layout.global_batch, layout.micro_batch, layout.dp)};
}

double layer_sum_seconds(const TrainingLayout& layout, double bytes, const TrainingHosts& hosts) {
  return sum_seconds(layout.tp, bytes, hosts);
}

double update_seconds(const DeviceModel& device, double parameters) {
  return device_seconds(device, {.name = "update", .bytes = kUpdateBytes * parameters});
}

TrainingStep training_step(const ModelSpec& spec, const TrainingLayout& layout,
                           const DeviceModel& device, const TrainingHosts& hosts) {
  const ShardedBatch batch = {.micro_batch = layout.micro_batch, .tp = layout.tp};
  const int64_t num_micro_batches = layout.global_batch / layout.micro_batch / layout.dp;
  const int64_t layers_of_stage = spec.layers / layout.pp;
  const double boundary = boundary_bytes(spec, batch);
  const double sum = sum_seconds(layout.tp, boundary, hosts);

  TrainingStep step;
  // Two sums in each of forward, recomputation and backward.
  step.layer_s = 2 * pass_seconds(device, layer_forward_work(spec, batch)) +
                 pass_seconds(device, layer_backward_work(spec, batch)) + 6 * sum;
  step.embedding_s = pass_seconds(device, embedding_work(spec, batch)) + sum;
  step.head_s = pass_seconds(device, head_work(spec, batch)) + sum;

  const double layers = static_cast<double>(layers_of_stage) * step.layer_s;
  const auto stages = static_cast<double>(layout.pp);
  double longest = layers + std::max(step.embedding_s, step.head_s);
  double transfer = 0;
  if (layout.pp == 1) {
    longest = layers + step.embedding_s + step.head_s;
  } else {
    const bool is_inside = layout.tp * layout.dp < hosts.devices_per_host;
    transfer = transfer_seconds(boundary, {.latency_s = hosts.inside.latency_s,
                                           .bytes_per_s = is_inside ? hosts.inside.bytes_per_s
                                                                    : hosts.between.bytes_per_s});
  }
  // A micro-batch passes 2 (pp - 1) borders, and the steady state waits for one each way.
  step.pipeline_s = stages * layers + step.embedding_s + step.head_s + 2 * (stages - 1) * transfer +
                    static_cast<double>(num_micro_batches - 1) * (longest + 2 * transfer);

  const auto hidden = static_cast<double>(spec.hidden);
  const double parameters = (static_cast<double>(layers_of_stage) * 12 * hidden +
                             static_cast<double>(padded_vocab(spec, layout.tp))) *
                            hidden / static_cast<double>(layout.tp);
  step.reduction_s = replica_sum_seconds(layout, 2 * parameters, hosts);
  step.update_s = update_seconds(device, parameters);
  step.seconds = step.pipeline_s + step.reduction_s + step.update_s;
  return step;
}

}  // namespace trireme
