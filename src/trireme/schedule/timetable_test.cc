#include "trireme/schedule/timetable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

// One line a rank: "F0@0-1 B0@4-6".
std::string times_of(std::string_view text, const PassCosts& costs) {
  const Schedule schedule = parse_schedule(text).value();
  EXPECT_TRUE(verify_schedule(schedule).ok());
  std::string lines;
  for (const std::vector<TimedAction>& lane : timetable(schedule, costs)) {
    std::vector<std::string> words;
    for (const TimedAction& timed : lane) {
      words.push_back(fmt::format("{}@{}-{}", to_text(timed.action), timed.begin, timed.end));
    }
    lines += fmt::format("{}\n", fmt::join(words, " "));
  }
  return lines;
}

constexpr std::string_view kTwoStages =
    "schedule x stages=2 micro-batches=2\n"
    "rank 0: Fc0 SA0 F1 SA1 R0 RG0 I0 RG1 B1 W0 SC0 U\n"
    "rank 1: RA0 F0 I0 SG0 RA1 F1 W0 B1 SG1 SC0 U\n";

TEST(Timetable, RunsEachListInOrderAndWaitsForWhatIsSent) {
  EXPECT_EQ(times_of(kTwoStages, {}),
            "Fc0@0-1 F1@1-2 R0@2-3 I0@3-4 B1@7-9 W0@9-10\n"
            "F0@1-2 I0@2-3 F1@3-4 W0@4-5 B1@5-7\n");
}

TEST(Timetable, GivesEachKindItsCostAndEachTransferItsDelay) {
  EXPECT_EQ(times_of(kTwoStages, {.forward = 10,
                                  .backward = 200,
                                  .input_gradient = 30,
                                  .weight_gradient = 40,
                                  .recompute = 5,
                                  .delay = 1000}),
            "Fc0@0-10 F1@10-20 R0@20-25 I0@2050-2080 B1@2300-2500 W0@2500-2540\n"
            "F0@1010-1020 I0@1020-1050 F1@1050-1060 W0@1060-1100 B1@1100-1300\n");
}

TEST(Timetable, LetsNothingWaitBetweenChunksOfOneRank) {
  EXPECT_EQ(times_of("schedule x stages=2 chunks=2 placement=v micro-batches=1\n"
                     "rank 0: F0 SA0 RA0.1 F0.1 B0.1 SG0.1 RG0 B0 SC0 U\n"
                     "rank 1: RA0 F0 F0.1 SA0.1 RG0.1 B0.1 B0 SG0 SC0 U\n",
                     {.delay = 100}),
            "F0@0-1 F0.1@203-204 B0.1@204-206 B0@410-412\n"
            "F0@101-102 F0.1@102-103 B0.1@306-308 B0@308-310\n");
}

TEST(Timetable, EndsWithTheLastPassAndSpansTheBusiestRank) {
  const auto table = timetable(parse_schedule("schedule x stages=2 micro-batches=1 evaluation\n"
                                              "rank 0: F0 SA0 SC0\n"
                                              "rank 1: RA0 F0 SC0\n")
                                   .value(),
                               {.forward = 3});
  EXPECT_EQ(makespan(table), 6);
  EXPECT_EQ(longest_span(table), 3);
}

}  // namespace
}  // namespace trireme
