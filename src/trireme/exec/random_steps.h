// RandomSteps: steps of random combinations of schedule, communication policy, layout and sizes of
// messages, and how to run them; for tests.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "trireme/exec/run_schedule.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

class RandomSteps {
 public:
  static constexpr int32_t kMostRanks = 8;

  explicit RandomSteps(uint32_t seed) : random_(seed) {}

  // Two to four steps after each other, verified; empty where no such schedule exists. Where steps
  // overlap, they differ in their warm-ups.
  std::vector<Schedule> steps();
  // Buckets are announced in any order, and ranks are held up now and then.
  RunOptions options(const Schedule& step);
  int32_t below(int32_t end);

 private:
  template <typename Row>
  const Row& pick(std::span<const Row> rows) {
    return rows[random_() % rows.size()];
  }
  const ScheduleBuilder& pick_builder();
  // Each step gets other extra warm-ups of the first hop, where such a run exists.
  void change_warm_ups(ScheduleOptions options, std::vector<Schedule>& steps);
  // Any that the verifier accepts.
  std::vector<Schedule> with_look_ahead(std::vector<Schedule> steps);

  std::mt19937_64 random_;
};

}  // namespace trireme
