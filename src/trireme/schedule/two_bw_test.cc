// 2BW: its text, its drawing, every size, and that no rank is idle between the first and the last
// step.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"
#include "trireme/schedule/drawing.h"
#include "trireme/schedule/unroll.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

using enum ActionKind;

std::vector<Schedule> run_of(const ScheduleOptions& options, int32_t num_steps) {
  Result<std::vector<Schedule>> steps = build_run("2bw", options, num_steps);
  EXPECT_TRUE(steps.ok()) << (steps.ok() ? "" : steps.error().message);
  return steps.ok() ? std::move(steps).value() : std::vector<Schedule>();
}

TEST(TwoBw, StepsOfTwoStagesAndTwoReplicasAreTheseTexts) {
  const std::vector<Schedule> steps = run_of(
      {.num_stages = 2, .num_micro_batches = {3, 3}, .num_buckets = {1, 1}, .clips_norm = true}, 3);
  ASSERT_EQ(steps.size(), 3);
  EXPECT_EQ(to_text(steps[0]),
            "schedule 2bw stages=2 micro-batches=3,3 look-ahead=2 buckets=1,1 clip-norm versions=2 "
            "ahead=1,0\n"
            "rank 0: F0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 F0+ SA0+ RG2 B2 SC0 AR0\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 AR0\n"
            "rank 2: F0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 F0+ SA0+ RG2 B2 SC0 AR0\n"
            "rank 3: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 AR0\n");
  EXPECT_EQ(to_text(steps[1]),
            "schedule 2bw stages=2 micro-batches=3,3 look-ahead=2 buckets=1,1 clip-norm versions=2 "
            "found=1,0 ahead=1,0\n"
            "rank 0: F1 SA1 RG0 B0 SC1- F2 SA2 RG1 B1 U- F0+ SA0+ RG2 B2 SC0 AR0\n"
            "rank 1: RA0 F0 B0 SG0 SC1- RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 AR0 U-\n"
            "rank 2: F1 SA1 RG0 B0 SC1- F2 SA2 RG1 B1 U- F0+ SA0+ RG2 B2 SC0 AR0\n"
            "rank 3: RA0 F0 B0 SG0 SC1- RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 AR0 U-\n");
  EXPECT_EQ(to_text(steps[2]),
            "schedule 2bw stages=2 micro-batches=3,3 look-ahead=2 buckets=1,1 clip-norm versions=2 "
            "found=1,0\n"
            "rank 0: F1 SA1 RG0 B0 SC1- F2 SA2 RG1 B1 U- RG2 B2 SC0 AR0 SC1 U\n"
            "rank 1: RA0 F0 B0 SG0 SC1- RA1 F1 B1 SG1 RA2 F2 B2 SG2 U- SC0 AR0 SC1 U\n"
            "rank 2: F1 SA1 RG0 B0 SC1- F2 SA2 RG1 B1 U- RG2 B2 SC0 AR0 SC1 U\n"
            "rank 3: RA0 F0 B0 SG0 SC1- RA1 F1 B1 SG1 RA2 F2 B2 SG2 U- SC0 AR0 SC1 U\n");
  for (const Schedule& step : steps) EXPECT_EQ(parse_schedule(to_text(step)).value(), step);
}

// A stage with tied parameters reduces them in the next step, so that it does not wait for TR.
TEST(TwoBw, TiedGradientsAreReducedInTheNextStep) {
  const std::vector<Schedule> steps = run_of({.num_stages = 3,
                                              .num_micro_batches = {3, 3},
                                              .tied_groups = {{0, 2}},
                                              .num_buckets = {1, 1, 1}},
                                             3);
  EXPECT_EQ(to_text(Schedule{.builder = "x",
                             .ranks = {steps[1].ranks[0], steps[1].ranks[1], steps[1].ranks[2]}}),
            "schedule x stages=1 micro-batches= look-ahead=2\n"
            "rank 0: F2 SA2 RG0 B0 AR0- U- F0+ SA0+ RG1 B1 F1+ SA1+ RG2 B2 SC0 TR0\n"
            "rank 1: RA1 F1 SA1 RG0 B0 SG0 RA2 F2 SA2 RG1 B1 SG1 U- RA0+ F0+ SA0+ RG2 B2 SG2 SC0 "
            "AR0\n"
            "rank 2: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 AR0- SC0 TR0 U-\n");
}

// The buckets without tied parameters do not wait for TR: they are summed when the step ends.
TEST(TwoBw, BucketsWithoutTiedParametersAreSummedInTheirOwnStep) {
  const std::vector<Schedule> steps = run_of({.num_stages = 2,
                                              .num_micro_batches = {3, 3},
                                              .tied_groups = {{0, 1}},
                                              .num_buckets = {3, 2},
                                              .num_tied_buckets = {1, 1},
                                              .communication = {.sums_early = true}},
                                             3);
  EXPECT_EQ(to_text(Schedule{.builder = "x", .ranks = {steps[1].ranks[0], steps[1].ranks[1]}}),
            "schedule x stages=1 micro-batches= look-ahead=2\n"
            "rank 0: F1 SA1 RG0 B0 AR2- F2 SA2 RG1 B1 U- F0+ SA0+ RG2 B2 SC0 AR0 AR1 TR0\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 AR1- RA2 F2 B2 SG2 SC0 AR0 TR0 U-\n");
}

// As published: nothing is left to the next step.
TEST(TwoBw, WithUpdatesAtTheEndEachStepEndsWithItsOwn) {
  const std::vector<Schedule> steps = run_of({.num_stages = 2,
                                              .num_micro_batches = {3, 3},
                                              .tied_groups = {{0, 1}},
                                              .num_buckets = {1, 1},
                                              .clips_norm = true,
                                              .communication = {.updates_at_end = true}},
                                             3);
  EXPECT_EQ(to_text(steps[1]),
            "schedule 2bw stages=2 micro-batches=3,3 look-ahead=2 buckets=1,1 tied=0+1 clip-norm "
            "versions=2 found=1,0 ahead=1,0 updates-at-end\n"
            "rank 0: F1 SA1 RG0 B0 F2 SA2 RG1 B1 F0+ SA0+ RG2 B2 SC0 TR0 AR0 SC1 U\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 TR0 AR0 SC1 U\n"
            "rank 2: F1 SA1 RG0 B0 F2 SA2 RG1 B1 F0+ SA0+ RG2 B2 SC0 TR0 AR0 SC1 U\n"
            "rank 3: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 TR0 AR0 SC1 U\n");
  for (const Schedule& step : steps) EXPECT_EQ(parse_schedule(to_text(step)).value(), step);
}

TEST(TwoBw, ThreeStepsOfThreeStagesLookAsInTheHeader) {
  const std::vector<Schedule> steps = run_of({.num_stages = 3, .num_micro_batches = {4}}, 3);
  EXPECT_EQ(
      draw(unroll(steps)),
      "rank 0 | F0   F1   F2   .    .    .    .    B0   --   F3   B1   --   F0+  B2   --   F1+  "
      "B3   --   F2+  B0+  --   F3+  B1+  --   F0++ B2+  --   F1++ B3+  --   F2++ B0++ --   "
      "F3++ B1++ --   .    B2++ --   .    B3++ --\n"
      "rank 1 | .    F0   F1   .    .    B0   --   F2   B1   --   F3   B2   --   F0+  B3   --   "
      "F1+  B0+  --   F2+  B1+  --   F3+  B2+  --   F0++ B3+  --   F1++ B0++ --   F2++ B1++ --  "
      " F3++ B2++ --   .    B3++ --\n"
      "rank 2 | .    .    F0   B0   --   F1   B1   --   F2   B2   --   F3   B3   --   F0+  B0+  "
      "--   F1+  B1+  --   F2+  B2+  --   F3+  B3+  --   F0++ B0++ --   F1++ B1++ --   F2++ B2++ "
      "--   F3++ B3++ --\n");
}

// By rank, when its passes of each step of the run begin: those that are listed there.
std::vector<std::vector<int64_t>> begins_of_steps(const std::vector<Schedule>& steps,
                                                  const PassCosts& costs) {
  std::vector<std::vector<int64_t>> begins;
  const auto table = timetable(unroll(steps), costs);
  for (size_t rank = 0; rank < table.size(); ++rank) {
    size_t next = 0;
    std::vector<int64_t>& of_rank = begins.emplace_back();
    for (const Schedule& step : steps) {
      of_rank.push_back(table[rank][next].begin);
      next += static_cast<size_t>(std::ranges::count_if(step.ranks[rank], [](const Action& action) {
        return is_compute(action.kind) && action.kind != kUpdate;
      }));
    }
  }
  return begins;
}

// Between the first step and the last each takes m (F + B) on every rank: no rank is ever idle,
// which is what 2BW is for (Narayanan et al. 2021, section 3.1). And every replica verifies, in
// every place.
TEST(TwoBw, AStepBetweenOthersTakesItsPassesAlone) {
  for (int32_t num_stages = 1; num_stages <= 8; ++num_stages) {
    for (int32_t m = 1; m <= 16; ++m) {
      ScheduleOptions options{.num_stages = num_stages, .num_micro_batches = {m}};
      if (m < num_stages - 1) {
        EXPECT_EQ(build_run("2bw", options, 2).error().message,
                  "schedule 2bw of " + std::to_string(num_stages) + " stages runs " +
                      std::to_string(num_stages - 1) + " forwards ahead, but a step has " +
                      std::to_string(m) + " micro-batches; give at least " +
                      std::to_string(num_stages - 1));
        continue;
      }
      const std::vector<Schedule> steps = run_of(options, 5);
      ASSERT_EQ(steps.size(), 5);
      for (const PassCosts& costs :
           {PassCosts{.forward = 1, .backward = 2}, PassCosts{.forward = 3, .backward = 3}}) {
        for (const std::vector<int64_t>& begins : begins_of_steps(steps, costs)) {
          // The last step has no forward ahead, and begins with another pass.
          for (size_t step = 2; step + 1 < begins.size(); ++step) {
            ASSERT_EQ(begins[step] - begins[step - 1], m * (costs.forward + costs.backward))
                << num_stages << " stages, " << m << " micro-batches, step " << step;
          }
        }
      }
    }
  }
}

TEST(TwoBw, RunsOfEverySizeVerify) {
  for (int32_t num_stages = 1; num_stages <= 8; ++num_stages) {
    for (int32_t m = std::max(1, num_stages - 1); m <= 16; ++m) {
      for (const bool clips : {false, true}) {
        ScheduleOptions options{
            .num_stages = num_stages,
            .num_micro_batches = {m, m == 16 ? m : m + 1},
            .clips_norm = clips,
            .communication = {.sums_early = m % 3 == 0, .updates_at_end = m % 2 == 0}};
        options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
        if (num_stages > 1) options.tied_groups = {{0, num_stages - 1}};
        if (num_stages > 2) options.tied_groups.push_back({1, num_stages - 1});
        if (num_stages > 2 && clips) {
          options.num_tied_buckets.assign(static_cast<size_t>(num_stages), 0);
          for (const int32_t stage : {0, 1, num_stages - 1}) {
            options.num_tied_buckets[static_cast<size_t>(stage)] = 1;
          }
        }
        for (const int32_t num_steps : {1, 2, 4}) {
          ASSERT_TRUE(build_run("2bw", options, num_steps).ok()) << num_stages << " " << m;
        }
      }
    }
  }
}

// Stage 0 is two forwards further ahead than stage 1, which is one ahead of the last.
TEST(TwoBw, WithAnExtraWarmUpAStageIsFurtherAheadOfTheNext) {
  const ScheduleOptions options{
      .num_stages = 3, .num_micro_batches = {4}, .extra_warm_ups = {1, 0}};
  const std::vector<Schedule> steps = run_of(options, 3);
  EXPECT_EQ(steps[1].num_ahead, (std::vector<int32_t>{3, 1, 0}));
  EXPECT_EQ(to_text(Schedule{.builder = "x", .ranks = {steps[1].ranks[0], steps[1].ranks[2]}}),
            "schedule x stages=1 micro-batches= look-ahead=2\n"
            "rank 0: F3 SA3 RG0 B0 U- F0+ SA0+ RG1 B1 F1+ SA1+ RG2 B2 F2+ SA2+ RG3 B3 SC0\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 RA3 F3 B3 SG3 SC0 U-\n");
  EXPECT_EQ(peak_in_flight(steps[1]), (std::vector<int32_t>{4, 2, 1}));
}

// Every number of stages with one more at each hop, clipped and tied, verifies.
TEST(TwoBw, RunsWithExtraWarmUpsVerify) {
  for (int32_t num_stages = 2; num_stages <= 8; ++num_stages) {
    for (int32_t m = 2 * (num_stages - 1); m <= 16; ++m) {
      ScheduleOptions options{
          .num_stages = num_stages,
          .num_micro_batches = {m, m},
          .tied_groups = {{0, num_stages - 1}},
          .clips_norm = m % 2 == 0,
          .extra_warm_ups = std::vector<int32_t>(static_cast<size_t>(num_stages) - 1, 1)};
      options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
      const auto steps = build_run("2bw", options, 4);
      ASSERT_TRUE(steps.ok()) << num_stages << " " << m << ": " << steps.error().message;
    }
  }
}

// The steps of a run in which each has these extra warm-ups of one hop.
std::vector<Schedule> run_with(ScheduleOptions options, const std::vector<int32_t>& extra) {
  std::vector<Schedule> steps;
  for (size_t i = 0; i < extra.size(); ++i) {
    const bool is_last = i + 1 == extra.size();
    options.place = i == 0 ? StepPlace::kFirst : is_last ? StepPlace::kLast : StepPlace::kBetween;
    options.found_extra_warm_ups.reset();
    if (i > 0) options.found_extra_warm_ups = options.extra_warm_ups;
    options.extra_warm_ups.assign(static_cast<size_t>(options.num_stages) - 1, extra[i]);
    steps.push_back(build_schedule("2bw", options).value());
  }
  return steps;
}

TEST(TwoBw, AStepGoesOverToAnotherNumberOfWarmUps) {
  const std::vector<Schedule> steps =
      run_with({.num_stages = 2, .num_micro_batches = {4}}, {0, 1, 1, 0, 0});
  const auto lists = [&](size_t step) {
    return to_text(Schedule{.builder = "x", .ranks = steps[step].ranks});
  };
  EXPECT_EQ(steps[1].num_found, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(steps[1].num_ahead, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(lists(1),
            "schedule x stages=1 micro-batches= look-ahead=2\n"
            "rank 0: F1 SA1 F2 SA2 RG0 B0 F3 SA3 RG1 B1 U- F0+ SA0+ RG2 B2 F1+ SA1+ RG3 B3 SC0\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 RA3 F3 B3 SG3 SC0 U-\n");
  EXPECT_EQ(lists(3),
            "schedule x stages=1 micro-batches= look-ahead=2\n"
            "rank 0: RG0 B0 F2 SA2 RG1 B1 F3 SA3 RG2 B2 U- F0+ SA0+ RG3 B3 SC0\n"
            "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 RA3 F3 B3 SG3 SC0 U-\n");
  EXPECT_EQ(peak_in_flight(steps[1]), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(peak_in_flight(steps[3]), (std::vector<int32_t>{2, 1}));
  EXPECT_TRUE(verify_run(steps).ok()) << verify_run(steps).error().message;
}

// Of six stages and 15 micro-batches a stage that is 15 ahead needs more than each step by itself.
TEST(TwoBw, RunsThatChangeTheirWarmUpsVerify) {
  int32_t most = 0;
  for (int32_t num_stages = 2; num_stages <= 6; ++num_stages) {
    const auto num_hops = static_cast<size_t>(num_stages) - 1;
    for (int32_t m = 3 * (num_stages - 1); m <= 16; m += 2) {
      ScheduleOptions options{.num_stages = num_stages,
                              .num_micro_batches = {m, m},
                              .tied_groups = {{0, num_stages - 1}},
                              .clips_norm = m % 2 == 0};
      options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
      for (const auto& [before, after] :
           {std::pair(0, 1), std::pair(0, 2), std::pair(1, 0), std::pair(1, 2), std::pair(2, 0)}) {
        options.found_extra_warm_ups.emplace(num_hops, before);
        options.extra_warm_ups.assign(num_hops, after);
        const Result<int32_t> look_ahead = look_ahead_of_change("2bw", options);
        ASSERT_TRUE(look_ahead.ok()) << num_stages << " " << m << ": " << before << " " << after
                                     << ": " << look_ahead.error().message;
        most = std::max(most, look_ahead.value());
      }
    }
  }
  EXPECT_EQ(most, 7);
}

TEST(TwoBw, AChangeThatDoesNotFitIsRefused) {
  EXPECT_EQ(look_ahead_of_change("2bw", {.num_stages = 2,
                                         .num_micro_batches = {2},
                                         .extra_warm_ups = {2},
                                         .found_extra_warm_ups = {{0}}})
                .error()
                .message,
            "schedule 2bw of 2 stages runs 3 forwards ahead, but a step has 2 micro-batches; give "
            "at least 3");
}

TEST(TwoBw, AStepWithFewerMicroBatchesThanItFindsIsRefused) {
  EXPECT_EQ(build_schedule("2bw", {.num_stages = 2,
                                   .num_micro_batches = {2},
                                   .place = StepPlace::kBetween,
                                   .found_extra_warm_ups = {{2}}})
                .error()
                .message,
            "schedule 2bw of 2 stages runs 3 forwards ahead, but a step has 2 micro-batches; give "
            "at least 3");
}

// A step posts its receives as far ahead as it says itself, whatever a later one says.
TEST(TwoBw, TheLookAheadOfALaterStepDoesNotHelpAnEarlierOne) {
  std::vector<Schedule> steps = run_with({.num_stages = 2, .num_micro_batches = {4}}, {0, 0, 0});
  ASSERT_TRUE(verify_run(steps).ok());
  for (Schedule& step : steps) step.look_ahead = 1;
  ASSERT_TRUE(verify_run(steps).ok());
  steps[0].look_ahead = 0;
  EXPECT_NE(verify_run(steps).error().message.find("deadlock"), std::string::npos);
}

TEST(TwoBw, ExtraWarmUpsThatDoNotFitAreRefused) {
  const auto refusal = [](const char* name, const ScheduleOptions& options) {
    return build_run(name, options, 2).error().message;
  };
  EXPECT_EQ(
      refusal("2bw", {.num_stages = 3, .num_micro_batches = {3}, .extra_warm_ups = {1, 1}}),
      "schedule 2bw of 3 stages runs 4 forwards ahead, but a step has 3 micro-batches; give at "
      "least 4");
  EXPECT_EQ(refusal("2bw", {.num_stages = 3, .num_micro_batches = {3}, .extra_warm_ups = {1}}),
            "there are extra warm-ups of 1 hops, but 3 stages have 2");
  EXPECT_EQ(refusal("2bw", {.num_stages = 2, .num_micro_batches = {3}, .extra_warm_ups = {-1}}),
            "-1 extra warm-ups of a hop: there are 0 to 16384");
  EXPECT_EQ(refusal("gpipe", {.num_stages = 2, .num_micro_batches = {3}, .extra_warm_ups = {1}}),
            "schedule gpipe has no extra warm-ups, which are for 1f1b and 2bw");
}

// Steps of other sizes follow each other, as where the last batch of the data is smaller.
TEST(TwoBw, ARunMayGoOnWithFewerMicroBatches) {
  std::vector<Schedule> steps = run_of({.num_stages = 4, .num_micro_batches = {8, 8}}, 2);
  steps[1] = build_schedule(
                 "2bw", {.num_stages = 4, .num_micro_batches = {4, 3}, .place = StepPlace::kLast})
                 .value();
  const Status status = verify_run(steps);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

// Keeps d forwards more than a backward needs, as 1F1B does.
TEST(TwoBw, HoldsNoMoreActivationsThanOneFOneB) {
  const std::vector<Schedule> steps = run_of({.num_stages = 4, .num_micro_batches = {8}}, 3);
  for (const Schedule& step : steps) {
    EXPECT_EQ(peak_in_flight(step), (std::vector<int32_t>{4, 3, 2, 1}));
  }
}

TEST(TwoBw, ABreachOfTheBorderIsNamed) {
  std::vector<Schedule> steps =
      run_of({.num_stages = 2, .num_micro_batches = {2, 2}, .num_buckets = {1, 1}}, 3);
  std::vector<Schedule> mixed = steps;
  mixed[1].communication.has_one_urgency = true;
  EXPECT_EQ(verify_run(mixed).error().message, "step 1 does not find what step 0 leaves");
  EXPECT_EQ(verify_run(std::vector<Schedule>{steps[1], steps[2]}).error().message,
            "a run begins with nothing found and ends with nothing ahead");
  EXPECT_EQ(verify_run(std::vector<Schedule>{steps[0], steps[0]}).error().message,
            "step 1 does not find what step 0 leaves");
  for (std::vector<Action>& actions : steps[0].ranks) {
    std::erase(actions, Action{kAllReduce, 0});
  }
  EXPECT_EQ(verify_run(steps).error().message, "rank 0 reduces bucket 0 of step 0 never");
}

}  // namespace
}  // namespace trireme
