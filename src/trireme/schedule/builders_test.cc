#include "trireme/schedule/builders.h"

#include <algorithm>
#include <tuple>

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

// The losses are exchanged after the last forward, and only a bucket of tied parameters waits for
// TR.
TEST(Builders, WithEarlySumsNothingThatIsReadyWaits) {
  const Result<Schedule> schedule = build_schedule("1f1b", {.num_stages = 2,
                                                            .num_micro_batches = {3, 0},
                                                            .tied_groups = {{0, 1}},
                                                            .num_buckets = {2, 1},
                                                            .num_tied_buckets = {1, 1},
                                                            .clips_norm = true,
                                                            .communication = {.sums_early = true}});
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule 1f1b stages=2 micro-batches=3,0 look-ahead=2 buckets=2,1 tied=0+1 "
            "tied-buckets=1,1 clip-norm early-sums\n"
            "rank 0: F0 SA0 F1 SA1 RG0 B0 F2 SA2 SC0 RG1 B1 RG2 B2 AR0 TR0 AR1 SC1 U\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 SC0 B2 SG2 TR0 AR0 SC1 U\n"
            "rank 2: SC0 AR0 TR0 AR1 SC1 U\n"
            "rank 3: SC0 TR0 AR0 SC1 U\n");
  EXPECT_EQ(parse_schedule(to_text(schedule.value())).value(), schedule.value());
}

// Which rows were read is told between the last forward and the last backward.
TEST(Builders, RowTablesAreSummedInThreeExchanges) {
  const ScheduleOptions options{.num_stages = 2,
                                .num_micro_batches = {3, 0},
                                .num_buckets = {1, 1},
                                .num_row_tables = {2, 0},
                                .clips_norm = true,
                                .communication = {.sums_early = true}};
  const Result<Schedule> schedule = build_schedule("1f1b", options);
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule 1f1b stages=2 micro-batches=3,0 look-ahead=2 buckets=1,1 row-tables=2,0 "
            "clip-norm early-sums\n"
            "rank 0: F0 SA0 F1 SA1 RG0 B0 F2 SA2 SC0 SX0 RG1 B1 RG2 SX1 B2 AR0 SX2 SX3 SC1 U\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 SC0 B2 SG2 AR0 SC1 U\n"
            "rank 2: SC0 SX0 SX1 AR0 SX2 SX3 SC1 U\n"
            "rank 3: SC0 AR0 SC1 U\n");
  EXPECT_EQ(parse_schedule(to_text(schedule.value())).value(), schedule.value());
}

// The last forward of a batch is that of the step before where all of them run ahead.
TEST(Builders, RowTablesOfStepsThatOverlapBelongToTheirBatch) {
  const Result<std::vector<Schedule>> run = build_run(
      "2bw", {.num_stages = 3, .num_micro_batches = {2, 2}, .num_row_tables = {1, 0, 1}}, 3);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(to_text(run.value()[1]),
            "schedule 2bw stages=3 micro-batches=2,2 look-ahead=2 row-tables=1,0,1 versions=2 "
            "found=2,1,0 ahead=2,1,0\n"
            "rank 0: SX0 U- F0+ SA0+ RG0 B0 F1+ SA1+ RG1 SX1 B1 SC0 SX2\n"
            "rank 1: RA1 F1 SA1 RG0 B0 SG0 U- RA0+ F0+ SA0+ RG1 B1 SG1 SC0\n"
            "rank 2: RA0 F0 B0 SG0 RA1 F1 SX0 SX1 B1 SG1 SC0 SX2 U-\n"
            "rank 3: SX0 U- F0+ SA0+ RG0 B0 F1+ SA1+ RG1 SX1 B1 SC0 SX2\n"
            "rank 4: RA1 F1 SA1 RG0 B0 SG0 U- RA0+ F0+ SA0+ RG1 B1 SG1 SC0\n"
            "rank 5: RA0 F0 B0 SG0 RA1 F1 SX0 SX1 B1 SG1 SC0 SX2 U-\n");
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

// One replica; two alike; and three of which the second has fewer micro-batches and the last none.
// Clipping, buckets and tied parameters take turns: no order depends on them.
std::vector<ScheduleOptions> grid(int32_t num_stages, int32_t num_micro_batches) {
  const int32_t m = num_micro_batches;
  std::vector<ScheduleOptions> all;
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{m}, std::vector<int32_t>{m, m}, std::vector<int32_t>{m, m / 3, 0}}) {
    const size_t turn = all.size() + static_cast<size_t>(m);
    ScheduleOptions options{
        .num_stages = num_stages, .num_micro_batches = counts, .clips_norm = turn % 2 == 0};
    if (counts.size() > 1) options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
    if (num_stages > 1 && turn % 3 != 0) options.tied_groups = {{0, num_stages - 1}};
    all.push_back(options);
  }
  return all;
}

// What a user could write down: the passes of GPipe.
Schedule written_order(int32_t num_stages, int32_t num_micro_batches) {
  Schedule order =
      build_schedule("gpipe", {.num_stages = num_stages, .num_micro_batches = {num_micro_batches}})
          .value();
  for (std::vector<Action>& actions : order.ranks) {
    std::erase_if(actions, [](const Action& action) {
      return !is_compute(action.kind) || action.kind == ActionKind::kUpdate;
    });
  }
  return order;
}

// Gradients are summed in the order of micro-batches, whatever the schedule: the sums of all
// schedules are the same bits.
int32_t weight_gradients_out_of_order(const Schedule& schedule) {
  int32_t count = 0;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<int32_t> last(static_cast<size_t>(schedule.num_chunks), -1);
    for (const Action& action : actions) {
      if (!ends_backward(action.kind)) continue;
      count += action.index != last[static_cast<size_t>(action.chunk)] + 1 ? 1 : 0;
      last[static_cast<size_t>(action.chunk)] = action.index;
    }
  }
  return count;
}

// A builder and a number of stages.
class BuilderGrid : public testing::TestWithParam<std::tuple<ScheduleBuilder, int32_t>> {};

TEST_P(BuilderGrid, VerifiesEveryNumberOfChunksAndMicroBatches) {
  const auto& [builder, num_stages] = GetParam();
  const std::vector<int32_t> chunks = builder.num_chunks == kAnyChunks
                                          ? std::vector<int32_t>{1, 2, 3, 4}
                                          : std::vector<int32_t>{builder.num_chunks};
  for (int32_t num_micro_batches = 1; num_micro_batches <= 16; ++num_micro_batches) {
    const Schedule order = written_order(num_stages, num_micro_batches);
    for (ScheduleOptions& options : grid(num_stages, num_micro_batches)) {
      for (const int32_t num_chunks : chunks) {
        if (builder.name == "text") options.order = std::make_shared<const Schedule>(order);
        options.num_chunks = num_chunks;
        const Result<Schedule> schedule = build_schedule(builder.name, options);
        ASSERT_TRUE(schedule.ok())
            << num_stages << " stages of " << options.num_chunks << " chunks, " << num_micro_batches
            << " micro-batches: " << schedule.error().message;
        const Result<Schedule> parsed = parse_schedule(to_text(schedule.value()));
        ASSERT_TRUE(parsed.ok()) << parsed.error().message;
        ASSERT_EQ(parsed.value(), schedule.value());
        ASSERT_EQ(weight_gradients_out_of_order(schedule.value()), 0) << to_text(schedule.value());
      }
    }
  }
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
  EXPECT_EQ(message_of("zigzag", {}),
            "unknown schedule \"zigzag\"; known are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, "
            "dualpipe-v, pre-recompute, last-no-recompute, shifted-critical-path, 2bw, greedy, "
            "text, forward-only");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 0, .num_micro_batches = {4}}),
            "0 stages and 4 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 "
            "micro-batch");
  EXPECT_EQ(message_of("gpipe", {.num_stages = 2, .num_micro_batches = {0, 0}}),
            "2 stages and 0 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 "
            "micro-batch");
  EXPECT_EQ(message_of("gpipe", {.num_stages = 2, .num_micro_batches = {3, -1}}),
            "2 stages and -1 micro-batches of replica 1: a replica has 0 to 16384");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 2, .num_micro_batches = {4}, .num_chunks = 2}),
            "schedule 1f1b has 1 chunk a rank, not 2");
  EXPECT_EQ(message_of("zb-v", {.num_stages = 2, .num_micro_batches = {4}}),
            "schedule zb-v has 2 chunks a rank, not 1");
  EXPECT_EQ(
      message_of("zb-v",
                 {.num_stages = 2, .num_micro_batches = {4}, .num_chunks = 2, .max_in_flight = 1}),
      "1 in flight a rank: a micro-batch alone has 2 chunks in flight");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 4, .num_micro_batches = {8}, .max_in_flight = 3}),
            "schedule 1f1b has up to 4 micro-batch chunks in flight on a rank, more than the limit "
            "of 3");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 4, .num_micro_batches = {8}, .max_in_flight = -3}),
            "-3 in flight a rank: a limit is at least 1");
  EXPECT_EQ(message_of("greedy", {.num_stages = 4,
                                  .num_micro_batches = {8},
                                  .costs = {.forward = int64_t{1} << 41}}),
            "a pass costs 2199023255552 units: it is 0 to 1099511627776");
  EXPECT_EQ(message_of("1f1b", {.num_stages = 2, .num_micro_batches = {20000}}),
            "2 stages and 20000 micro-batches of replica 0: a replica has 0 to 16384");
}

TEST(Builders, KeepToALimitOfWhatIsInFlight) {
  for (int32_t num_stages = 1; num_stages <= 8; ++num_stages) {
    for (int32_t limit = 1; limit <= 2 * num_stages; ++limit) {
      for (const auto& [name, chunks] :
           {std::pair<std::string_view, int32_t>("greedy", 1), {"greedy", 3}, {"zb-v", 2}}) {
        if (limit < chunks) continue;
        const Result<Schedule> schedule = build_schedule(name, {.num_stages = num_stages,
                                                                .num_micro_batches = {9},
                                                                .num_chunks = chunks,
                                                                .costs = {.delay = 2},
                                                                .max_in_flight = limit});
        ASSERT_TRUE(schedule.ok()) << schedule.error().message;
        EXPECT_LE(std::ranges::max(peak_in_flight(schedule.value())), limit);
      }
    }
  }
}

std::string text_built(std::string_view order, const ScheduleOptions& options) {
  const Schedule parsed = parse_schedule(order).value();
  ScheduleOptions given = options;
  given.order = std::make_shared<const Schedule>(parsed);
  const Result<Schedule> schedule = build_schedule("text", given);
  return schedule.ok() ? to_text(schedule.value()) : schedule.error().message;
}

TEST(Builders, TextCompletesTheOrderOfAUser) {
  constexpr std::string_view kOrder =
      "schedule mine stages=2 micro-batches=2\n"
      "rank 0: F0 Fc1 RG0 I0 R1 B1 W0\n"
      "rank 1: F0 B0 F1 B1\n";
  EXPECT_EQ(text_built(kOrder, {.num_stages = 2, .num_micro_batches = {2, 1}, .clips_norm = true}),
            "schedule text stages=2 micro-batches=2,1 look-ahead=2 clip-norm\n"
            "rank 0: F0 SA0 Fc1 SA1 RG0 I0 R1 RG1 B1 W0 SC0 SC1 U\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 SC1 U\n"
            "rank 2: F0 SA0 RG0 I0 W0 SC0 SC1 U\n"
            "rank 3: RA0 F0 B0 SG0 SC0 SC1 U\n");
  EXPECT_EQ(text_built("schedule mine stages=2 chunks=2 placement=v micro-batches=1\n"
                       "rank 0: F0 F0.1 B0.1 B0\n"
                       "rank 1: F0 F0.1 B0.1 B0\n",
                       {.num_stages = 2, .num_micro_batches = {1}}),
            "schedule text stages=2 chunks=2 placement=v micro-batches=1 look-ahead=2\n"
            "rank 0: F0 SA0 RA0.1 F0.1 B0.1 SG0.1 RG0 B0 SC0 U\n"
            "rank 1: RA0 F0 F0.1 SA0.1 RG0.1 B0.1 B0 SG0 SC0 U\n");
}

TEST(Builders, TextRefusesAnOrderThatDoesNotFit) {
  constexpr std::string_view kOrder =
      "schedule mine stages=2 micro-batches=2\n"
      "rank 0: F0 F1 B0 B1\n"
      "rank 1: F0 B0 F1 B1\n";
  EXPECT_EQ(message_of("text", {.num_stages = 2, .num_micro_batches = {2}}),
            "schedule text needs an order that was written down");
  EXPECT_EQ(text_built(kOrder, {.num_stages = 3, .num_micro_batches = {2}}),
            "the order is of 2 stages and 2 micro-batches, not of 3 and 2");
  EXPECT_EQ(text_built(kOrder, {.num_stages = 2, .num_micro_batches = {2, 3}}),
            "the order is of 2 stages and 2 micro-batches, not of 2 and 3");
  EXPECT_EQ(text_built("schedule mine stages=2 micro-batches=1\nrank 0: F0 B0\n",
                       {.num_stages = 2, .num_micro_batches = {1}}),
            "the order lists 1 ranks: 2 stages make as many");
  EXPECT_EQ(text_built("schedule mine stages=1 micro-batches=1,1\nrank 0: F0 B0\nrank 1: F0 B0\n",
                       {.num_stages = 1, .num_micro_batches = {1, 1}}),
            "the order is of 2 replicas: give that of one, which all follow");
  EXPECT_EQ(text_built("schedule mine stages=1 micro-batches=1\nrank 0: F0 B0 U\n",
                       {.num_stages = 1, .num_micro_batches = {1}}),
            "rank 0 of the order lists U, which is added by itself");
  EXPECT_EQ(text_built("schedule mine stages=1 micro-batches=1\nrank 0: F0 B0 F0.2147483647\n",
                       {.num_stages = 1, .num_micro_batches = {1}}),
            "rank 0 lists F0.2147483647, but its number of chunks is 1");
  EXPECT_EQ(text_built("schedule mine stages=2 micro-batches=1\nrank 0: F0 B0\nrank 1: B0 F0\n",
                       {.num_stages = 2, .num_micro_batches = {1}}),
            "rank 1 runs B0 before F0");
}

INSTANTIATE_TEST_SUITE_P(All, BuilderGrid,
                         testing::Combine(testing::ValuesIn(schedule_builders().begin(),
                                                            schedule_builders().end()),
                                          testing::Range(1, 9)),
                         [](const auto& row) {
                           std::string name(std::get<0>(row.param).name);
                           std::ranges::replace(name, '-', '_');
                           return name + "_of_" + std::to_string(std::get<1>(row.param)) +
                                  "_stages";
                         });

}  // namespace
}  // namespace trireme
