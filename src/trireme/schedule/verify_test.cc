#include "trireme/schedule/verify.h"

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

std::string first_broken_rule(const Schedule& schedule) {
  const ScheduleIndex index(schedule);
  for (const ScheduleRule& rule : schedule_rules()) {
    if (!rule.check(index).ok()) return std::string(rule.name);
  }
  return "none";
}

std::string message_of(const Status& status) { return status.ok() ? "" : status.error().message; }

Schedule good_schedule() {
  return build_schedule("1f1b", {.num_stages = 2,
                                 .num_micro_batches = {2, 2},
                                 .tied_groups = {{0, 1}},
                                 .num_buckets = {1, 1}})
      .value();
}

// The message after one change to a good schedule.
std::string after(void (*change)(Schedule& schedule)) {
  Schedule schedule = good_schedule();
  change(schedule);
  EXPECT_EQ(first_broken_rule(schedule), "shape");
  return message_of(verify_schedule(schedule));
}

TEST(Verify, NamesEachNumberOfAShapeThatIsWrong) {
  EXPECT_EQ(after([](Schedule& s) { s.builder = ""; }), "the schedule's name \"\" is not one word");
  EXPECT_EQ(after([](Schedule& s) { s.builder = "a b"; }),
            "the schedule's name \"a b\" is not one word");
  EXPECT_EQ(after([](Schedule& s) { s.num_stages = 0; }),
            "0 stages and 4 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 "
            "micro-batch");
  EXPECT_EQ(after([](Schedule& s) { s.num_micro_batches = {}; }),
            "2 stages and 0 micro-batches: a schedule needs 1 to 1048576 stages and at least 1 "
            "micro-batch");
  EXPECT_EQ(after([](Schedule& s) { s.num_micro_batches[1] = -1; }),
            "2 stages and -1 micro-batches of replica 1: a replica has 0 to 16384");
  EXPECT_EQ(after([](Schedule& s) { s.num_chunks = 17; }), "17 chunks a rank: a rank has 1 to 16");
  EXPECT_EQ(after([](Schedule& s) { s.look_ahead = -1; }), "look-ahead -1: it must be at least 0");
  EXPECT_EQ(after([](Schedule& s) { s.num_buckets = {1}; }), "1 bucket counts for 2 stages");
  EXPECT_EQ(after([](Schedule& s) { s.num_buckets[1] = -2; }),
            "stage 1 has -2 gradient buckets: with 2 replicas there are 0 to 1048576");
  EXPECT_EQ(after([](Schedule& s) { s.num_micro_batches = {2}; }),
            "stage 0 has 1 gradient buckets: with 1 replicas there are 0 to 0");
  EXPECT_EQ(after([](Schedule& s) { s.tied_groups[0] = {1}; }),
            "tied group 0 has 1 stages: a group is held by at least 2");
  EXPECT_EQ(after([](Schedule& s) { s.tied_groups[0] = {1, 0}; }),
            "the stages of tied group 0 are not in ascending order");
  EXPECT_EQ(after([](Schedule& s) { s.tied_groups[0] = {0, 2}; }),
            "tied group 0 names stage 2: stages are 0 to 1");
  EXPECT_EQ(after([](Schedule& s) { s.tied_groups[0] = {-1, 1}; }),
            "tied group 0 names stage -1: stages are 0 to 1");
}

// Two neighbours that send to each other at the same time, as in pytorch issue 172668.
TEST(Verify, RefusesOneFOneBWhoseReceivesAreNotPostedAhead) {
  Schedule schedule = build_schedule("1f1b", {.num_stages = 2, .num_micro_batches = {2}}).value();
  EXPECT_EQ(message_of(verify_schedule(schedule)), "");
  schedule.look_ahead = 1;
  EXPECT_EQ(message_of(verify_schedule(schedule)), "");
  schedule.look_ahead = 0;
  EXPECT_EQ(message_of(verify_schedule(schedule)),
            "deadlock at look-ahead 0: rank 0 waits at SA1 until rank 1 reaches RA1, rank 1 waits "
            "at SG0 until rank 0 reaches RG0");
}

TEST(Verify, TellsOnlyTheCircleOfADeadlockNotWhoWaitsForIt) {
  Schedule schedule = build_schedule("1f1b", {.num_stages = 3, .num_micro_batches = {3}}).value();
  schedule.look_ahead = 0;
  EXPECT_EQ(message_of(verify_schedule(schedule)),
            "deadlock at look-ahead 0: rank 1 waits at SA1 until rank 2 reaches RA1, rank 2 waits "
            "at SG0 until rank 1 reaches RG0");
}

TEST(Verify, CountsWhatIsInFlightByWhatIsHeld) {
  const Schedule schedule = parse_schedule(
                                "schedule x stages=1 micro-batches=5\n"
                                "rank 0: F0 Fc1 Fc2 F3 I0 B3 R1 R2 I1 F4 I4 W1 W4 W0 B2 SC0 U\n")
                                .value();
  ASSERT_TRUE(verify_schedule(schedule).ok());
  // From F or R to B or W: F0 R1 R2 F4 are held at F4 (I0 and I1 wait for their W).
  EXPECT_EQ(peak_in_flight(schedule), std::vector<int32_t>{4});
  // R1 R2 at R2: 10 + 10, I0: 1; then I1 F4 R2: 1 + 10 + 10, I0: 1.
  EXPECT_EQ(peak_in_flight(schedule, {.kept = 10, .kept_input = 0, .deferred = 1}),
            std::vector<int32_t>{22});
  // At F3: F0 F3 and two inputs.
  EXPECT_EQ(peak_in_flight(schedule, {.kept = 10, .kept_input = 9, .deferred = 0}),
            std::vector<int32_t>{38});
}

// Every action of a good schedule is needed, and needed once, and its kind matters.
TEST(Verify, RefusesAnyScheduleThatLostOrDoubledAnAction) {
  const Schedule good = good_schedule();
  ASSERT_TRUE(verify_schedule(good).ok());
  for (size_t rank = 0; rank < good.ranks.size(); ++rank) {
    for (size_t position = 0; position < good.ranks[rank].size(); ++position) {
      Schedule lost = good;
      lost.ranks[rank].erase(lost.ranks[rank].begin() + static_cast<int64_t>(position));
      EXPECT_FALSE(verify_schedule(lost).ok()) << to_text(lost);
      Schedule doubled = good;
      doubled.ranks[rank].push_back(good.ranks[rank][position]);
      EXPECT_EQ(first_broken_rule(doubled), "once");
    }
  }
}

}  // namespace
}  // namespace trireme
