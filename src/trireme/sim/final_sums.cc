#include "trireme/sim/final_sums.h"

#include "trireme/schedule/early_sums.h"
#include "trireme/schedule/peers.h"

namespace trireme {

std::vector<FinalSum> final_sums(const Schedule& schedule, const StepCosts& costs,
                                 const PassTable& passes, int32_t rank) {
  std::vector<FinalSum> sums;
  if (!schedule.communication.sums_early) return sums;
  const int32_t stage = stage_of(schedule, rank);
  const StageCosts& of_stage = costs.stages[static_cast<size_t>(stage)];
  for (int32_t batch = 0; batch < schedule.num_steps; ++batch) {
    for (int32_t b = 0; b < schedule.num_buckets[static_cast<size_t>(stage)]; ++b) {
      const auto bucket = static_cast<size_t>(b);
      const auto pass = last_backward(schedule, rank, batch, chunks_of_bucket(of_stage, bucket));
      if (!pass) continue;
      const SimTime duration = passes.of(stage, *pass).duration;
      const ChunkCosts& chunk = of_stage.chunks[static_cast<size_t>(pass->chunk)];
      const auto after = static_cast<double>(final_after(chunk, bucket, duration));
      sums.push_back({.pass = *pass,
                      .sum = {ActionKind::kAllReduce, b, 0, batch},
                      .share = duration == 0 ? 0 : after / static_cast<double>(duration)});
    }
  }
  return sums;
}

}  // namespace trireme
