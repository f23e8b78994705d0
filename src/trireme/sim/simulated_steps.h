// Steps for the tests of the simulator, of numbers that a reader can add up.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"
#include "trireme/sim/simulate.h"

namespace trireme {

inline constexpr SimTime kSecond = 1'000'000'000;

// Hosts of one device each behind one switch.
inline Cluster star(int32_t hosts, const LinkSpeed& speed) {
  return {.name = "star",
          .device_kinds = {{.name = "d", .flops = {{"float32", 1e12}}, .bandwidth = 1e12}},
          .host_kinds = {{.name = "h", .device = "d", .devices = 1, .link = {1e15, 0}}},
          .hosts = {{.name = "n", .kind = "h", .count = hosts}},
          .network = {.topology = "fat-tree", .speed = speed, .hosts_per_switch = 1 << 10}};
}

inline StepCosts costs_of(int32_t stages, int64_t bytes) {
  StepCosts costs;
  costs.stages.assign(stages, {.chunks = {{.forward = kSecond,
                                           .backward = 2 * kSecond,
                                           .activation_bytes = bytes,
                                           .gradient_bytes = bytes,
                                           .kept_bytes = 1000}},
                               .update = 0,
                               .bucket_bytes = {0},
                               .static_bytes = 50});
  return costs;
}

inline Schedule schedule_of(const char* name, int32_t stages, std::vector<int32_t> micro_batches,
                            std::vector<int32_t> buckets = {}) {
  Result<Schedule> schedule = build_schedule(name, {.num_stages = stages,
                                                    .num_micro_batches = std::move(micro_batches),
                                                    .num_buckets = std::move(buckets)});
  EXPECT_TRUE(schedule.ok());
  return std::move(schedule).value();
}

// With the costs of as many buckets as the schedule has.
inline Simulation run(const Schedule& schedule, StepCosts costs, const Cluster& cluster,
                      const SimOptions& options = {}) {
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    costs.stages[s].bucket_bytes.resize(static_cast<size_t>(schedule.num_buckets[s]));
  }
  Result<Simulation> simulation = simulate(schedule, costs, cluster, options);
  EXPECT_TRUE(simulation.ok()) << (simulation.ok() ? "" : simulation.error().message);
  const Status verified = verify_timeline(simulation.value().timeline);
  EXPECT_TRUE(verified.ok()) << (verified.ok() ? "" : verified.error().message);
  return std::move(simulation).value();
}

}  // namespace trireme
