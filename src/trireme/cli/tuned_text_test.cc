#include "trireme/cli/tuned_text.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TriedPolicy tried(const char* name, SimTime step, const PolicyOptions& options = {}) {
  return {.row = find_policy(name).value(),
          .options = options,
          .step = step,
          .exposed = {step / 10, 1, step / 20, 2}};
}

TEST(TunedText, ShowsTheBestOfEachPolicyAndPicksWhatCanRun) {
  const std::vector<TriedPolicy> all = {
      tried("dear", 8'000'000, {.bucket_bytes = 4'000'000}), tried("dear", 9'000'000),
      tried("fifo", 10'000'000, {.bucket_bytes = 2'000'000}), tried("trirace", 12'000'000)};
  EXPECT_EQ(tuned_table(all, 7'000'000, {"passes: guessed"}),
            "policy              with                        step  waits for sums  waits for "
            "messages\n"
            "dear                buckets of 4 MB         8.000 ms        0.800 ms            0.400 "
            "ms\n"
            "fifo                buckets of 2 MB        10.000 ms        1.000 ms            0.500 "
            "ms  *\n"
            "trirace             its own sizes          12.000 ms        1.200 ms            0.600 "
            "ms  *\n"
            "4 steps simulated; without communication a step takes 7.000 ms; * --comm has it\n"
            "pick: --comm fifo --bucket-bytes 2000000, 10.000 ms a step\n"
            "note: passes: guessed\n");
}

TEST(TunedText, PicksTheDefaultWhereNothingIsAThousandthFaster) {
  std::vector<TriedPolicy> all = {tried("trirace", 10'000'000, {.chunk_bytes = 4'000'000}),
                                  tried("end", 10'000'001), tried("trirace", 10'010'000)};
  EXPECT_EQ(pick(all).step, 10'010'000);
  all.back().step = 10'010'001;
  EXPECT_EQ(pick(all).step, 10'000'000);
}

TEST(TunedText, ProgramsReadAllThatWasTried) {
  EXPECT_EQ(tuned_json({tried("trirace", 2000, {.chunk_bytes = 5})}, 1000, {}),
            R"({
 "compute_ns": 1000,
 "pick": {
  "policy": "trirace",
  "piece_bytes": 5,
  "step_ns": 2000,
  "exposed_sums_ns": 201,
  "exposed_messages_ns": 102
 },
 "tried": [
  {
   "policy": "trirace",
   "piece_bytes": 5,
   "step_ns": 2000,
   "exposed_sums_ns": 201,
   "exposed_messages_ns": 102
  }
 ]
}
)");
}

}  // namespace
}  // namespace trireme
