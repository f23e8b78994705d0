#include "trireme/exec/run_watch.h"

#include <signal.h>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{};
constexpr int kKilled = SIGKILL;  // wait statuses
constexpr int kExited3 = 3 << 8;
constexpr int kExited0 = 0;

RunWatch connected(int32_t num_ranks) {
  RunWatch watch({.num_ranks = num_ranks}, kStart);
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    EXPECT_TRUE(watch.admit(rank, kStart).ok());
  }
  return watch;
}

// Who is told, and what is decided, as one text; "" when nothing is.
std::string told(RunWatch& watch) {
  std::string text;
  if (const auto announcement = watch.take_announcement()) {
    text = describe_cause(announcement->cause, describe_bare_rank) + " ->";
    for (const int32_t rank : announcement->to) text += " " + std::to_string(rank);
  }
  return text;
}

std::string decided(RunWatch& watch) {
  const auto failure = watch.take_failure();
  if (!failure.has_value()) return "";
  std::string text;
  for (const std::string& line : describe_failure(*failure, describe_bare_rank)) {
    text += line + "\n";
  }
  return text;
}

TEST(RunWatch, ALostRankIsTheCauseAndTheOthersAreAsked) {
  RunWatch watch = connected(3);
  watch.connection_ended(1, kStart);
  EXPECT_EQ(told(watch), "rank 1 died: its control connection ended -> 0 2");
  watch.answered(0, "F1");
  watch.tick(kStart);
  EXPECT_EQ(decided(watch), "");
  watch.answered(2, "B0");
  watch.tick(kStart);
  EXPECT_EQ(decided(watch),
            "rank 1 died: its control connection ended\nrank 0 was in F1\nrank 2 was in B0\n");
  watch.tick(kStart + seconds(60));
  EXPECT_EQ(decided(watch), "");
}

TEST(RunWatch, WhoDoesNotAnswerInTimeIsNotWaitedFor) {
  RunWatch watch = connected(3);
  watch.connection_ended(1, kStart);
  watch.answered(0, "F1");
  watch.tick(kStart + milliseconds(1999));
  EXPECT_EQ(decided(watch), "");
  EXPECT_EQ(watch.next_deadline(), kStart + seconds(2));
  watch.tick(kStart + seconds(2));
  EXPECT_EQ(decided(watch),
            "rank 1 died: its control connection ended\nrank 0 was in F1\n"
            "rank 2 did not say what it was doing\n");
}

TEST(RunWatch, TheStatusOfTheProcessIsBetterThanTheEndOfItsConnection) {
  RunWatch watch = connected(2);
  watch.connection_ended(1, kStart);
  watch.exited(1, kKilled, kStart);
  watch.answered(0, "F1");
  watch.tick(kStart);
  EXPECT_EQ(decided(watch), "rank 1 died: killed by signal 9 (SIGKILL)\nrank 0 was in F1\n");
}

TEST(RunWatch, AnExitWithoutAWordIsADeath) {
  RunWatch watch = connected(2);
  watch.exited(0, kExited0, kStart);
  EXPECT_EQ(told(watch), "rank 0 died: exited with status 0 before it had finished -> 1");
  RunWatch starting({.num_ranks = 2}, kStart);
  starting.exited(1, kExited3, kStart);
  EXPECT_EQ(decided(starting), "rank 1 died: exited with status 3\nrank 0 was starting\n");
}

TEST(RunWatch, AFailureOfItsOwnIsTheCauseWhateverFollows) {
  RunWatch watch = connected(3);
  watch.failed(2, "the loss is nan", FailureOrigin::kOwn, kStart);
  watch.connection_ended(1, kStart);
  watch.exited(2, kExited3, kStart);
  EXPECT_EQ(told(watch), "rank 2 failed: the loss is nan -> 0");
}

TEST(RunWatch, AFailureOfUnknownOriginYieldsToALossWithinAMoment) {
  RunWatch watch = connected(3);
  watch.failed(0, "a transfer failed", FailureOrigin::kUnknown, kStart);
  watch.tick(kStart + milliseconds(149));
  EXPECT_EQ(told(watch), "");
  watch.connection_ended(1, kStart + milliseconds(149));
  EXPECT_EQ(told(watch), "rank 1 died: its control connection ended -> 0 2");
}

TEST(RunWatch, AFailureOfUnknownOriginYieldsToOneThatIsCertain) {
  RunWatch watch = connected(3);
  watch.failed(0, "a transfer failed", FailureOrigin::kUnknown, kStart);
  watch.failed(1, "another transfer failed", FailureOrigin::kUnknown, kStart);
  watch.failed(2, "the loss is nan", FailureOrigin::kOwn, kStart + milliseconds(1));
  watch.tick(kStart + milliseconds(1));
  EXPECT_EQ(told(watch), "rank 2 failed: the loss is nan -> 0 1 2");
}

TEST(RunWatch, AFailureOfUnknownOriginStandsWhenNothingBetterComes) {
  RunWatch watch = connected(2);
  watch.failed(0, "a transfer failed", FailureOrigin::kUnknown, kStart);
  watch.tick(kStart + milliseconds(150));
  EXPECT_EQ(told(watch), "rank 0 failed: a transfer failed -> 1 0");
  watch.connection_ended(1, kStart + milliseconds(151));
  EXPECT_EQ(decided(watch), "rank 0 failed: a transfer failed\nrank 1 ended as well\n");
}

TEST(RunWatch, ASilentRankIsLostAfterThirtySeconds) {
  RunWatch watch = connected(2);
  watch.heard(0, kStart + seconds(10));
  EXPECT_EQ(watch.next_deadline(), kStart + seconds(30));
  watch.tick(kStart + milliseconds(29999));
  EXPECT_EQ(told(watch), "");
  watch.tick(kStart + seconds(30));
  EXPECT_EQ(told(watch), "rank 1 was lost: silent for 30 s -> 0");
}

TEST(RunWatch, SilenceWhileNobodyListenedIsExcused) {
  RunWatch watch = connected(1);
  watch.excuse_silence(kStart + seconds(100));
  watch.tick(kStart + seconds(129));
  EXPECT_EQ(told(watch), "");
}

TEST(RunWatch, ARankThatDoesNotConnectIsLost) {
  RunWatch watch({.num_ranks = 2}, kStart);
  EXPECT_TRUE(watch.admit(0, kStart).ok());
  watch.heard(0, kStart + seconds(119));
  watch.tick(kStart + seconds(120));
  EXPECT_EQ(told(watch), "rank 1 was lost: did not connect within 120 s -> 0");
}

TEST(RunWatch, AllFinishedIsToldOnceAndEndsOfConnectionsThenMeanNothing) {
  RunWatch watch = connected(2);
  watch.finished(0);
  watch.connection_ended(0, kStart);
  watch.exited(0, kExited0, kStart);
  EXPECT_FALSE(watch.take_all_finished());
  watch.finished(1);
  EXPECT_TRUE(watch.take_all_finished());
  EXPECT_FALSE(watch.take_all_finished());
  watch.connection_ended(1, kStart);
  watch.exited(1, kExited0, kStart);
  EXPECT_EQ(told(watch), "");
}

TEST(RunWatch, ACrashAfterFinishingIsAFailure) {
  RunWatch watch = connected(2);
  watch.finished(0);
  watch.exited(0, SIGSEGV, kStart);
  watch.answered(1, "U");
  watch.tick(kStart);
  EXPECT_EQ(decided(watch),
            "rank 0 died: killed by signal 11 (SIGSEGV) after it had finished\nrank 1 was in U\n");
}

TEST(RunWatch, RefusesRanksThatDoNotBelong) {
  RunWatch watch = connected(2);
  EXPECT_EQ(watch.admit(2, kStart).error().message, "the run has 2 ranks and no rank 2");
  EXPECT_EQ(watch.admit(-1, kStart).error().message, "the run has 2 ranks and no rank -1");
  EXPECT_EQ(watch.admit(1, kStart).error().message, "rank 1 is or was connected already");
  RunWatch ending({.num_ranks = 2}, kStart);
  ending.exited(1, kExited3, kStart);
  EXPECT_EQ(ending.admit(0, kStart).error().message,
            "the run is ending because another rank failed");
}

TEST(RunWatch, SaysWhomItWaitsForWhenThatIsWorthAWord) {
  const TimePoint start{};
  RunWatch watch({.num_ranks = 3, .notice_after = std::chrono::seconds(5)}, start);
  ASSERT_TRUE(watch.admit(1, start).ok());
  EXPECT_EQ(watch.next_deadline(), start + std::chrono::seconds(5));
  EXPECT_EQ(watch.take_absent(start + std::chrono::seconds(4)), std::nullopt);
  const TimePoint later = start + std::chrono::seconds(5);
  EXPECT_EQ(watch.take_absent(later), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(watch.take_absent(later), std::nullopt);
  ASSERT_TRUE(watch.admit(0, later).ok());
  EXPECT_EQ(watch.take_absent(later + std::chrono::seconds(30)), (std::vector<int32_t>{2}));
  ASSERT_TRUE(watch.admit(2, later).ok());
  EXPECT_EQ(watch.take_absent(later + std::chrono::seconds(90)), std::nullopt);
}

TEST(RunWatch, NamesHostsWhenThereAreSeveral) {
  for (const bool has_several : {false, true}) {
    const TimePoint start{};
    RunWatch watch({.num_ranks = 2}, start);
    for (const int32_t rank : {0, 1}) {
      ASSERT_TRUE(watch.admit(rank, start).ok());
      watch.is_on(rank, rank == 1 && has_several ? "b" : "a");
    }
    watch.failed(1, "no", FailureOrigin::kOwn, start);
    watch.answered(0, "F0");
    watch.tick(start);
    const std::optional<RunFailure> failure = watch.take_failure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(
        describe_failure(*failure, describe_bare_rank),
        (has_several ? std::vector<std::string>{"rank 1 on b failed: no", "rank 0 on a was in F0"}
                     : std::vector<std::string>{"rank 1 failed: no", "rank 0 was in F0"}));
  }
}

}  // namespace
}  // namespace trireme
