// simulator_bench STAGES REPLICAS MICRO-BATCHES: simulates one step of 1F1B with data parallelism
// on hosts of eight devices under a fat tree, and prints as JSON what that took.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <sys/resource.h>

#include <fmt/format.h>

#include "trireme/cluster/cluster.h"
#include "trireme/schedule/builders.h"
#include "trireme/sim/simulate.h"

using namespace trireme;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// examples/clusters/dgx-a100-pod.yaml with as many hosts as needed.
Cluster pod(int32_t hosts) {
  return {.name = "pod",
          .device_kinds = {{.name = "a100", .flops = {{"bfloat16", 312e12}}, .bandwidth = 2e12}},
          .host_kinds = {{.name = "dgx",
                          .device = "a100",
                          .devices = 8,
                          .link = {300e9, 1e-6},
                          .adapter = {25e9, 1e-6}}},
          .hosts = {{.name = "dgx", .kind = "dgx", .count = hosts}},
          .network = {.topology = "fat-tree", .speed = {200e9, 0.5e-6}, .hosts_per_switch = 8}};
}

// Six layers a stage of hidden size 12288, 2048 tokens a micro-batch in bfloat16.
StepCosts costs_of(int32_t stages) {
  StepCosts costs;
  costs.stages.assign(static_cast<size_t>(stages), {.chunks = {{.forward = to_sim_time(0.2),
                                                                .backward = to_sim_time(0.4),
                                                                .activation_bytes = 50'331'648,
                                                                .gradient_bytes = 50'331'648,
                                                                .kept_bytes = 3'000'000'000}},
                                                    .update = to_sim_time(0.02),
                                                    .bucket_bytes = {20'000'000'000},
                                                    .static_bytes = 60'000'000'000});
  costs.scalar_bytes = 16;
  return costs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int32_t stages = std::atoi(argv[1]);
  const int32_t replicas = std::atoi(argv[2]);
  const int32_t micro_batches = std::atoi(argv[3]);
  const auto begin = std::chrono::steady_clock::now();
  const Result<Schedule> schedule = build_schedule(
      "1f1b",
      {.num_stages = stages,
       .num_micro_batches = std::vector<int32_t>(static_cast<size_t>(replicas), micro_batches),
       .num_buckets = std::vector<int32_t>(static_cast<size_t>(stages), 1)});
  if (!schedule.ok()) return 1;
  const double build_seconds = seconds_since(begin);
  const Cluster cluster = pod((stages * replicas + 7) / 8);
  const StepCosts costs = costs_of(stages);
  const auto start = std::chrono::steady_clock::now();
  const Result<Simulation> simulation = simulate(schedule.value(), costs, cluster);
  const double seconds = seconds_since(start);
  if (!simulation.ok()) return 1;
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{{\"seconds\": {}, \"build_seconds\": {}, \"num_events\": {}, \"timeline_events\": {}, "
      "\"step_seconds\": {}, \"peak_rss_mb\": {}}}\n",
      seconds, build_seconds, simulation.value().num_events,
      simulation.value().timeline.events.size(), to_seconds(simulation.value().step),
      static_cast<double>(usage.ru_maxrss) / 1e3);
  return 0;
}
