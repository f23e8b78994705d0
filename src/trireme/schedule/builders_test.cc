#include "trireme/schedule/builders.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/schedule/timetable.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

TEST(Builders, OneFOneBOfTwoStagesAndTwoReplicasIsThisText) {
  const Result<Schedule> schedule = build_schedule("1f1b", {.num_stages = 2,
                                                            .num_micro_batches = {3, 1},
                                                            .tied_groups = {{0, 1}},
                                                            .num_buckets = {2, 1},
                                                            .clips_norm = true});
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule 1f1b stages=2 micro-batches=3,1 look-ahead=2 buckets=2,1 tied=0+1 clip-norm\n"
            "rank 0: F0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 RG2 B2 SC0 TR0 AR0 AR1 SC1 U\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 TR0 AR0 SC1 U\n"
            "rank 2: F0 SA0 RG0 B0 SC0 TR0 AR0 AR1 SC1 U\n"
            "rank 3: RA0 F0 B0 SG0 SC0 TR0 AR0 SC1 U\n");
}

TEST(Builders, GpipeKeepsBackwardsInTheOrderOfMicroBatches) {
  const Result<Schedule> schedule =
      build_schedule("gpipe", {.num_stages = 2, .num_micro_batches = {2}});
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule gpipe stages=2 micro-batches=2 look-ahead=2\n"
            "rank 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 SC0 U\n"
            "rank 1: RA0 F0 RA1 F1 B0 SG0 B1 SG1 SC0 U\n");
}

TEST(Builders, ForwardOnlyHasNoGradientsAndKeepsTheShape) {
  const Result<Schedule> schedule = build_schedule(
      "forward-only", {.num_stages = 2, .num_micro_batches = {2}, .tied_groups = {{0, 1}}});
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule forward-only stages=2 micro-batches=2 look-ahead=2 tied=0+1 evaluation\n"
            "rank 0: F0 SA0 F1 SA1 SC0\n"
            "rank 1: RA0 F0 RA1 F1 SC0\n");
}

TEST(Builders, AReplicaWithoutMicroBatchesKeepsItsCollectives) {
  const Result<Schedule> schedule =
      build_schedule("1f1b", {.num_stages = 1, .num_micro_batches = {1, 0}, .num_buckets = {1}});
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule 1f1b stages=1 micro-batches=1,0 look-ahead=2 buckets=1\n"
            "rank 0: F0 B0 SC0 AR0 U\n"
            "rank 1: SC0 AR0 U\n");
}

// Micro-batches of each replica: all equal, or ever fewer down to none.
std::vector<int32_t> counts(int32_t num_micro_batches, int32_t num_replicas, bool is_even) {
  std::vector<int32_t> result;
  result.reserve(static_cast<size_t>(num_replicas));
  for (int32_t replica = 0; replica < num_replicas; ++replica) {
    result.push_back(is_even ? num_micro_batches : num_micro_batches / (1 << (2 * replica)));
  }
  return result;
}

std::vector<ScheduleOptions> grid(int32_t num_stages, int32_t num_micro_batches) {
  std::vector<ScheduleOptions> all;
  for (int32_t num_replicas = 1; num_replicas <= 3; ++num_replicas) {
    for (bool is_even : {true, false}) {
      if (num_replicas == 1 && !is_even) continue;
      for (bool clips_norm : {false, true}) {
        for (bool is_tied : {false, true}) {
          if (is_tied && num_stages == 1) continue;
          ScheduleOptions options{
              .num_stages = num_stages,
              .num_micro_batches = counts(num_micro_batches, num_replicas, is_even),
              .num_buckets =
                  std::vector<int32_t>(static_cast<size_t>(num_stages), num_replicas == 1 ? 0 : 2),
              .clips_norm = clips_norm};
          if (is_tied) options.tied_groups = {{0, num_stages - 1}};
          all.push_back(options);
        }
      }
    }
  }
  return all;
}

class BuilderGrid : public testing::TestWithParam<ScheduleBuilder> {};

TEST_P(BuilderGrid, VerifiesEveryStageAndMicroBatchCount) {
  int32_t num_verified = 0;
  const std::vector<int32_t> chunks = GetParam().num_chunks == kAnyChunks
                                          ? std::vector<int32_t>{1, 2, 3, 4}
                                          : std::vector<int32_t>{GetParam().num_chunks};
  for (int32_t num_stages = 1; num_stages <= 8; ++num_stages) {
    for (int32_t num_micro_batches = 1; num_micro_batches <= 16; ++num_micro_batches) {
      for (ScheduleOptions& options : grid(num_stages, num_micro_batches)) {
        options.num_chunks = chunks[static_cast<size_t>(num_verified) % chunks.size()];
        const Result<Schedule> schedule = build_schedule(GetParam().name, options);
        ASSERT_TRUE(schedule.ok())
            << num_stages << " stages of " << options.num_chunks << " chunks, " << num_micro_batches
            << " micro-batches: " << schedule.error().message;
        const Result<Schedule> parsed = parse_schedule(to_text(schedule.value()));
        ASSERT_TRUE(parsed.ok()) << parsed.error().message;
        ASSERT_EQ(parsed.value(), schedule.value());
        ++num_verified;
      }
    }
  }
  // 16 micro-batch counts x 5 replica shapes x clipping, and tied or not from 2 stages on.
  EXPECT_EQ(num_verified, 16 * 5 * 2 * (1 + 7 * 2));
}

// An evaluation goes where training has put the chunks.
TEST(Builders, ForwardOnlyRunsAnyPlacementOfChunks) {
  for (const Placement placement : {Placement::kLooped, Placement::kV}) {
    for (int32_t num_stages = 1; num_stages <= 5; ++num_stages) {
      for (int32_t num_chunks = 1; num_chunks <= 4; ++num_chunks) {
        const Result<Schedule> schedule =
            build_schedule("forward-only", {.num_stages = num_stages,
                                            .num_micro_batches = {7, 3},
                                            .num_chunks = num_chunks,
                                            .placement = placement});
        ASSERT_TRUE(schedule.ok()) << schedule.error().message;
        // No rank waits but for the first micro-batch: m V passes after those that it has not.
        if (placement == Placement::kLooped && num_stages <= 3 && num_chunks == 1) {
          EXPECT_EQ(makespan(timetable(schedule.value(), {})), 7 + num_stages - 1);
        }
      }
    }
  }
}

int64_t time_of(std::string_view name, int32_t stages, int32_t m, int32_t chunks,
                const PassCosts& costs) {
  const Result<Schedule> schedule = build_schedule(
      name, {.num_stages = stages, .num_micro_batches = {m}, .num_chunks = chunks, .costs = costs});
  EXPECT_TRUE(schedule.ok()) << schedule.error().message;
  return makespan(timetable(schedule.value(), costs));
}

// Qi et al., ICLR 2024, section 2.3 and table 2: the bubble of ZB-H1 is (S-1)(F + I - W), with the
// memory of 1F1B's first stage, for m >= S and S >= 2 even passes.
TEST(Builders, ZbH1HasTheBubbleOfThePaper) {
  for (const int32_t stages : {2, 3, 4, 8}) {
    for (const int32_t m : {stages, 2 * stages, 4 * stages}) {
      EXPECT_EQ(time_of("zb-h1", stages, m, 1, {}), m * 3 + (stages - 1) * (1 + 1 - 1))
          << stages << " stages, " << m << " micro-batches";
      const Schedule schedule =
          build_schedule("zb-h1", {.num_stages = stages, .num_micro_batches = {m}}).value();
      EXPECT_EQ(peak_in_flight(schedule), std::vector<int32_t>(stages, stages));
    }
  }
}

// Narayanan et al., SC 2021, section 2.2: with V chunks, each of F/V and B/V, the bubble is
// (S-1)(F+B)/V where S divides m.
TEST(Builders, InterleavedHasAVthOfTheBubble) {
  for (const int32_t stages : {2, 4, 8}) {
    for (const int32_t chunks : {1, 2, 4}) {
      for (const int32_t m : {stages, 2 * stages, 4 * stages}) {
        EXPECT_EQ(time_of("interleaved", stages, m, chunks, {}), m * chunks * 3 + (stages - 1) * 3)
            << stages << " stages, " << chunks << " chunks, " << m << " micro-batches";
      }
    }
  }
}

// Qi et al., 2024 (controllable memory), section 3 and figure 4: with F = I = W, ZB-V has no bubble
// but the wait of the last rank for the first micro-batch, and the memory of 1F1B, which is 2 S
// half stages.
TEST(Builders, ZbVHasNoBubbleInsideAndTheMemoryOfOneFOneB) {
  for (const int32_t stages : {2, 4, 8}) {
    for (const int32_t m : {2 * stages, 4 * stages}) {
      const Schedule schedule =
          build_schedule("zb-v", {.num_stages = stages, .num_micro_batches = {m}, .num_chunks = 2})
              .value();
      const auto table = timetable(schedule, {});
      EXPECT_EQ(makespan(table), 6 * m + stages - 1) << stages << " stages, " << m;
      for (const int32_t peak : peak_in_flight(schedule)) EXPECT_LE(peak, 2 * stages);
    }
  }
}

// How many receives must be posted ahead so that blocking sends cannot deadlock, over S and m in
// 1..8.
int32_t needed_look_ahead(std::string_view name) {
  int32_t needed = 0;
  for (int32_t num_stages = 1; num_stages <= 8; ++num_stages) {
    for (int32_t num_micro_batches = 1; num_micro_batches <= 8; ++num_micro_batches) {
      Schedule schedule =
          build_schedule(name, {.num_stages = num_stages, .num_micro_batches = {num_micro_batches}})
              .value();
      schedule.look_ahead = needed;
      while (!verify_schedule(schedule).ok() && schedule.look_ahead < 16) ++schedule.look_ahead;
      needed = schedule.look_ahead;
    }
  }
  return needed;
}

TEST(Builders, TheLookAheadOfTwoIsMoreThanDeadlockAsksFor) {
  EXPECT_EQ(needed_look_ahead("gpipe"), 0);
  EXPECT_EQ(needed_look_ahead("1f1b"), 1);
  EXPECT_EQ(needed_look_ahead("forward-only"), 0);
}

TEST(Builders, GpipeKeepsAllMicroBatchesAliveAndOneFOneBOneAStageBehind) {
  const ScheduleOptions options{.num_stages = 4, .num_micro_batches = {8, 2}};
  EXPECT_EQ(peak_in_flight(build_schedule("gpipe", options).value()),
            (std::vector<int32_t>{8, 8, 8, 8, 2, 2, 2, 2}));
  EXPECT_EQ(peak_in_flight(build_schedule("1f1b", options).value()),
            (std::vector<int32_t>{4, 3, 2, 1, 2, 2, 2, 1}));
  EXPECT_EQ(peak_in_flight(build_schedule("forward-only", options).value()),
            (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1}));
}

std::string message_of(std::string_view name, const ScheduleOptions& options) {
  const Result<Schedule> schedule = build_schedule(name, options);
  return schedule.ok() ? "" : schedule.error().message;
}

TEST(Builders, RefuseNumbersThatNoScheduleExistsFor) {
  EXPECT_EQ(
      message_of("zigzag", {}),
      "unknown schedule \"zigzag\"; known are gpipe, 1f1b, interleaved, zb-h1, zb-v, forward-only");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 0, .num_micro_batches = {4}}),
            "0 stages and 4 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 "
            "micro-batch");
  EXPECT_EQ(message_of("gpipe", {.num_stages = 2, .num_micro_batches = {0, 0}}),
            "2 stages and 0 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 "
            "micro-batch");
  EXPECT_EQ(message_of("gpipe", {.num_stages = 2, .num_micro_batches = {3, -1}}),
            "2 stages and -1 micro-batches of replica 1: a replica has 0 to 16384");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 2, .num_micro_batches = {20000}}),
            "2 stages and 20000 micro-batches of replica 0: a replica has 0 to 16384");
}

INSTANTIATE_TEST_SUITE_P(All, BuilderGrid,
                         testing::ValuesIn(schedule_builders().begin(), schedule_builders().end()),
                         [](const auto& row) {
                           std::string name(row.param.name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trireme
