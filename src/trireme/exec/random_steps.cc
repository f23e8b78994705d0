#include "trireme/exec/random_steps.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "trireme/exec/forwarding_transport.h"
#include "trireme/schedule/communication.h"
#include "trireme/schedule/verify.h"

namespace trireme {

std::vector<Schedule> RandomSteps::steps() {
  const ScheduleBuilder& builder = pick_builder();
  ScheduleOptions options{.num_stages = below(4) + 1, .clips_norm = below(2) == 0};
  const int32_t num_replicas = below(std::min(3, kMostRanks / options.num_stages)) + 1;
  for (int32_t replica = 0; replica < num_replicas; ++replica) {
    options.num_micro_batches.push_back(below(7));
  }
  options.num_chunks = builder.num_chunks == kAnyChunks ? below(3) + 1 : builder.num_chunks;
  options.communication = pick(communication_policies()).rules;
  if (options.num_stages > 1 && below(2) == 0) {
    options.tied_groups = {{0, options.num_stages - 1}};
  }
  for (int32_t stage = 0; num_replicas > 1 && stage < options.num_stages; ++stage) {
    options.num_buckets.push_back(below(4));
    options.num_row_tables.push_back(below(3));
    if (options.tied_groups.empty()) continue;
    options.num_tied_buckets.push_back(below(options.num_buckets.back() + 1));
  }
  if (builder.num_weight_versions == 2 && options.num_stages > 1) {
    options.extra_warm_ups.assign(static_cast<size_t>(options.num_stages) - 1, 0);
    options.extra_warm_ups[static_cast<size_t>(below(options.num_stages - 1))] = below(3);
  }
  Result<std::vector<Schedule>> built = build_run(builder.name, options, below(3) + 2);
  if (!built.ok()) return {};
  if (!options.extra_warm_ups.empty()) change_warm_ups(options, built.value());
  return with_look_ahead(std::move(built).value());
}

void RandomSteps::change_warm_ups(ScheduleOptions options, std::vector<Schedule>& steps) {
  std::vector<Schedule> changed;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_last = i + 1 == steps.size();
    options.place = i == 0 ? StepPlace::kFirst : is_last ? StepPlace::kLast : StepPlace::kBetween;
    options.found_extra_warm_ups = options.extra_warm_ups;
    options.extra_warm_ups.front() = below(3);
    Result<Schedule> step = build_schedule(steps[i].builder, options);
    if (!step.ok()) return;
    changed.push_back(std::move(step).value());
  }
  if (verify_run(changed).ok()) steps = std::move(changed);
}

RunOptions RandomSteps::options(const Schedule& step) {
  RunOptions options{.size_seed = below(1 << 30)};
  const int32_t num_buckets = step.num_buckets.empty() ? 0 : std::ranges::max(step.num_buckets);
  options.announced.resize(static_cast<size_t>(num_buckets));
  for (int32_t bucket = 0; bucket < num_buckets; ++bucket) options.announced[bucket] = bucket;
  std::ranges::shuffle(options.announced, random_);
  const uint64_t seed = random_();
  options.decorate = [seed](int32_t rank, Transport& inner) {
    return std::make_unique<DelayingTransport>(inner, seed + static_cast<uint64_t>(rank));
  };
  return options;
}

int32_t RandomSteps::below(int32_t end) {
  return static_cast<int32_t>(random_() % static_cast<uint64_t>(end));
}

const ScheduleBuilder& RandomSteps::pick_builder() {
  while (true) {
    const ScheduleBuilder& builder = pick(schedule_builders());
    if (builder.is_training && builder.name != "text") return builder;
  }
}

std::vector<Schedule> RandomSteps::with_look_ahead(std::vector<Schedule> steps) {
  const std::vector<Schedule> built = steps;
  const int32_t look_ahead = below(5);
  for (Schedule& step : steps) step.look_ahead = look_ahead;
  return verify_run(steps).ok() ? steps : built;
}

}  // namespace trireme
