// Whole runs: every schedule of a grid, over transports that block, and that fail.
#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "trireme/exec/executor.h"
#include "trireme/exec/forwarding_transport.h"
#include "trireme/exec/run_schedule.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

// A send blocks until its receive is posted: the harshest transport that the verifier allows for.
class BlockingTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    TRIREME_TRY(const Ticket ticket, ForwardingTransport::post_send(peer, tag, bytes));
    TRIREME_TRY(ForwardingTransport::wait(ticket));
    done_.insert(ticket);
    return ticket;
  }
  Status wait(Ticket ticket) override {
    return done_.erase(ticket) == 1 ? Status() : ForwardingTransport::wait(ticket);
  }

 private:
  std::set<Ticket> done_;
};

// Fails at call `num_calls` and at all after it.
class FailingTransport : public ForwardingTransport {
 public:
  // Counts the calls that are passed on in `num_passed`, which outlives it.
  FailingTransport(Transport& inner, int64_t num_calls, int64_t& num_passed)
      : ForwardingTransport(inner), num_calls_(num_calls), num_passed_(num_passed) {}
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    TRIREME_TRY(pass());
    return ForwardingTransport::post_send(peer, tag, bytes);
  }
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    TRIREME_TRY(pass());
    return ForwardingTransport::post_receive(peer, tag, bytes);
  }
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    TRIREME_TRY(pass());
    return ForwardingTransport::post_all_reduce(communicator, dtype, bytes);
  }
  Status wait(Ticket ticket) override {
    TRIREME_TRY(pass());
    return ForwardingTransport::wait(ticket);
  }

 private:
  Status pass() {
    if (num_passed_ == num_calls_) return Error{"the cable was cut"};
    ++num_passed_;
    return Status();
  }
  int64_t num_calls_;
  int64_t& num_passed_;
};

std::unique_ptr<Transport> make_blocking(int32_t /*rank*/, Transport& inner) {
  return std::make_unique<BlockingTransport>(inner);
}

// Everything but the calls for messages, which the look-ahead moves. A collective is complete
// before the action that needs it, at the latest when the step ends.
std::vector<std::string> expected_calls(const std::vector<Action>& actions, int32_t num_steps) {
  std::vector<std::string> calls;
  for (int32_t step = 0; step < num_steps; ++step) {
    std::vector<Action> issued;
    const auto complete = [&](auto is_needed) {
      for (const Action& collective : issued) {
        if (is_needed(collective)) calls.push_back("complete " + to_text(collective));
      }
      std::erase_if(issued, is_needed);
    };
    for (const Action& action : actions) {
      complete([&](const Action& collective) { return waits_for(action, collective); });
      if (is_collective(action.kind)) issued.push_back(action);
      if (is_receive(action.kind)) calls.push_back("complete " + to_text(action));
      if (is_compute(action.kind)) calls.push_back(to_text(action));
    }
    complete([](const Action& /*collective*/) { return true; });
  }
  return calls;
}

// The run succeeds, and the kernels see the actions of the list in its order.
void expect_runs(const Schedule& schedule, const RunOptions& options) {
  const RunOutcome outcome = run_schedule(schedule, options);
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    ASSERT_TRUE(outcome.ranks[rank].ok())
        << to_text(schedule) << "rank " << rank << ": " << outcome.ranks[rank].error().message;
    std::vector<std::string> calls = outcome.calls[rank];
    std::erase_if(calls, [](const std::string& call) {
      return call.starts_with("message") || call.starts_with("end");
    });
    ASSERT_EQ(calls, expected_calls(schedule.ranks[rank], options.num_steps)) << to_text(schedule);
  }
}

std::vector<Schedule> grid() {
  std::vector<Schedule> schedules;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (builder.name == "text") continue;  // an order of one's own: see the tests of builders
    for (int32_t num_stages : {1, 2, 3, 4}) {
      for (const std::vector<int32_t>& counts :
           {std::vector<int32_t>{1}, {5}, {3, 3}, {4, 1}, {2, 0}}) {
        ScheduleOptions options{
            .num_stages = num_stages, .num_micro_batches = counts, .clips_norm = true};
        options.num_chunks = builder.num_chunks == kAnyChunks ? 2 : builder.num_chunks;
        if (num_stages > 1) options.tied_groups = {{0, num_stages - 1}};
        if (num_stages > 2) options.tied_groups.push_back({1, 2});
        if (counts.size() > 1) options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
        schedules.push_back(build_schedule(builder.name, options).value());
      }
    }
  }
  return schedules;
}

TEST(ExecutorRuns, MoveEveryMessageOfEverySchedule) {
  for (const Schedule& schedule : grid()) expect_runs(schedule, {});
}

TEST(ExecutorRuns, EndAlsoWhereSendsBlockUntilTheirReceiveIsPosted) {
  for (Schedule schedule : grid()) {
    // The smallest look-ahead that the verifier accepts.
    schedule.look_ahead = 0;
    while (!verify_schedule(schedule).ok()) ++schedule.look_ahead;
    expect_runs(schedule, {.num_steps = 2, .decorate = make_blocking});
  }
}

// Whole runs of 2BW, whose steps overlap: each message holds what its own batch sent. Also with as
// many forwards ahead as there are micro-batches.
TEST(ExecutorRuns, MoveWhatCrossesTheBorderOfSteps) {
  for (const int32_t num_stages : {1, 2, 3, 5}) {
    for (const std::vector<int32_t>& counts : {std::vector<int32_t>{4}, {5, 4}, {9, 6}}) {
      for (const bool clips : {false, true}) {
        ScheduleOptions options{
            .num_stages = num_stages, .num_micro_batches = counts, .clips_norm = clips};
        if (num_stages > 1) options.tied_groups = {{0, num_stages - 1}};
        if (counts.size() > 1) options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
        if (clips && num_stages > 1) {
          options.extra_warm_ups.assign(static_cast<size_t>(num_stages) - 1, 0);
          options.extra_warm_ups.back() = std::ranges::min(counts) - (num_stages - 1);
        }
        std::vector<Schedule> steps = build_run("2bw", options, 4).value();
        const auto expect_success = [&](const RunOptions& run) {
          const RunOutcome outcome = run_steps(steps, run);
          for (const Status& status : outcome.ranks) {
            ASSERT_TRUE(status.ok()) << status.error().message << "\n" << to_text(steps[1]);
          }
        };
        for (uint64_t seed = 0; seed < 4; ++seed) {
          expect_success({.decorate = [&](int32_t rank, Transport& inner) {
            return std::make_unique<DelayingTransport>(inner, seed * 100 + rank);
          }});
        }
        // The smallest look-ahead that the verifier accepts.
        const auto set_look_ahead = [&](int32_t look_ahead) {
          for (Schedule& step : steps) step.look_ahead = look_ahead;
        };
        set_look_ahead(0);
        while (!verify_run(steps).ok()) set_look_ahead(steps[0].look_ahead + 1);
        expect_success({.decorate = make_blocking});
      }
    }
  }
}

TEST(ExecutorRuns, TakeChunksThatGoRoundTheStages) {
  const Schedule schedule =
      parse_schedule(
          "schedule interleaved stages=2 chunks=2 micro-batches=2 look-ahead=2\n"
          "rank 0: F0 SA0 F1 SA1 RA0.1 F0.1 SA0.1 RA1.1 F1.1 SA1.1 RG0.1 B0.1 SG0.1 RG1.1 B1.1 "
          "SG1.1 RG0 B0 RG1 B1 SC0 U\n"
          "rank 1: RA0 F0 SA0 RA1 F1 SA1 RA0.1 F0.1 B0.1 SG0.1 RA1.1 F1.1 B1.1 SG1.1 RG0 B0 SG0 "
          "RG1 B1 SG1 SC0 U\n")
          .value();
  ASSERT_TRUE(verify_schedule(schedule).ok()) << verify_schedule(schedule).error().message;
  expect_runs(schedule, {});
  expect_runs(schedule, {.num_steps = 1, .decorate = make_blocking});
}

TEST(ExecutorRuns, TakeAVWithSplitBackwardsAndRecomputation) {
  const Schedule schedule =
      parse_schedule(
          "schedule x stages=2 chunks=2 placement=v micro-batches=2,1 look-ahead=2 buckets=1,1\n"
          "rank 0: F0 SA0 Fc1 SA1 RA0.1 F0.1 I0.1 SG0.1 RA1.1 F1.1 B1.1 SG1.1 RG0 I0 W0.1 R1 RG1 "
          "B1 W0 SC0 AR0 U\n"
          "rank 1: RA0 F0 F0.1 SA0.1 RA1 F1 Fc1.1 SA1.1 RG0.1 I0.1 I0 SG0 R1.1 RG1.1 B1.1 I1 SG1 "
          "W0 W0.1 W1 SC0 AR0 U\n"
          "rank 2: F0 SA0 RA0.1 F0.1 I0.1 SG0.1 W0.1 RG0 B0 SC0 AR0 U\n"
          "rank 3: RA0 F0 F0.1 SA0.1 RG0.1 B0.1 B0 SG0 SC0 AR0 U\n")
          .value();
  ASSERT_TRUE(verify_schedule(schedule).ok()) << verify_schedule(schedule).error().message;
  expect_runs(schedule, {});
  expect_runs(schedule, {.num_steps = 1, .decorate = make_blocking});
}

// Swaps any two neighbours of a rank's list; what the verifier still accepts must run, whatever the
// look-ahead.
TEST(ExecutorRuns, EndWhateverOrderTheVerifierAccepts) {
  Schedule good =
      build_schedule(
          "1f1b",
          {.num_stages = 3, .num_micro_batches = {3}, .tied_groups = {{0, 2}}, .clips_norm = true})
          .value();
  int32_t num_accepted = 0;
  for (int32_t look_ahead : {0, 1, 3}) {
    good.look_ahead = look_ahead;
    for (size_t rank = 0; rank < good.ranks.size(); ++rank) {
      for (size_t position = 1; position < good.ranks[rank].size(); ++position) {
        Schedule schedule = good;
        std::swap(schedule.ranks[rank][position - 1], schedule.ranks[rank][position]);
        if (!verify_schedule(schedule).ok()) continue;
        ++num_accepted;
        expect_runs(schedule, {.num_steps = 1, .decorate = make_blocking});
      }
    }
  }
  EXPECT_GT(num_accepted, 20);
}

// Counts the sends that are posted and not waited for.
class CountingTransport : public ForwardingTransport {
 public:
  // Keeps the largest count in `max_sends`, which outlives it.
  CountingTransport(Transport& inner, size_t& max_sends)
      : ForwardingTransport(inner), max_sends_(max_sends) {}
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    TRIREME_TRY(const Ticket ticket, ForwardingTransport::post_send(peer, tag, bytes));
    sends_.insert(ticket);
    max_sends_ = std::max(max_sends_, sends_.size());
    return ticket;
  }
  Status wait(Ticket ticket) override {
    sends_.erase(ticket);
    return ForwardingTransport::wait(ticket);
  }

 private:
  std::set<Ticket> sends_;
  size_t& max_sends_;
};

// The calls for messages of AR, and the end of the pass that announces buckets.
std::vector<std::string> sums_of(const std::vector<std::string>& calls) {
  std::vector<std::string> sums;
  for (const std::string& call : calls) {
    if (call.starts_with("message AR") || call.starts_with("end ")) sums.push_back(call);
  }
  return sums;
}

ScheduleOptions early_options(std::vector<int32_t> num_micro_batches) {
  return {.num_stages = 1,
          .num_micro_batches = std::move(num_micro_batches),
          .num_buckets = {3},
          .communication = {.sums_early = true}};
}

TEST(ExecutorRuns, SumsLeaveWithinThePassInTheOrderOfTheListWhateverIsFinalFirst) {
  const Schedule schedule = build_schedule("1f1b", early_options({2, 2})).value();
  std::vector<int32_t> order = {0, 1, 2};
  do {
    const RunOutcome outcome = run_schedule(schedule, {.num_steps = 2, .announced = order});
    for (int32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(outcome.ranks[static_cast<size_t>(rank)].ok());
      const std::vector<std::string> step = {"message AR0", "message AR1", "message AR2", "end B1"};
      std::vector<std::string> expected = step;
      expected.insert(expected.end(), step.begin(), step.end());
      EXPECT_EQ(sums_of(outcome.calls[static_cast<size_t>(rank)]), expected);
    }
  } while (std::ranges::next_permutation(order).found);
}

// Of those that are not announced the first one, and all behind it, leave at their place.
TEST(ExecutorRuns, WhatIsNotAnnouncedLeavesAtItsPlace) {
  const Schedule schedule = build_schedule("1f1b", early_options({2, 2})).value();
  const std::vector<std::pair<std::vector<int32_t>, std::vector<std::string>>> rows = {
      {{0, 2}, {"message AR0", "end B1", "message AR1", "message AR2"}},
      {{1, 2}, {"end B1", "message AR0", "message AR1", "message AR2"}},
      {{1, 0}, {"message AR0", "message AR1", "end B1", "message AR2"}}};
  for (const auto& [announced, expected] : rows) {
    const RunOutcome outcome = run_schedule(schedule, {.num_steps = 1, .announced = announced});
    for (int32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(outcome.ranks[static_cast<size_t>(rank)].ok());
      EXPECT_EQ(sums_of(outcome.calls[static_cast<size_t>(rank)]), expected);
    }
  }
}

TEST(ExecutorRuns, NothingLeavesEarlyWhereTheScheduleDoesNotSaySo) {
  ScheduleOptions options = early_options({2, 2});
  options.communication = {};
  const RunOutcome outcome = run_schedule(build_schedule("1f1b", options).value(),
                                          {.num_steps = 1, .announced = {0, 1, 2}});
  EXPECT_EQ(sums_of(outcome.calls[1]),
            (std::vector<std::string>{"end B1", "message AR0", "message AR1", "message AR2"}));
}

TEST(ExecutorRuns, SumsBehindATiedReductionLeaveAfterIt) {
  ScheduleOptions options = early_options({2, 2});
  options.num_stages = 2;
  options.num_buckets = {3, 3};
  options.tied_groups = {{0, 1}};
  options.num_tied_buckets = {1, 1};
  const RunOutcome outcome = run_schedule(build_schedule("1f1b", options).value(),
                                          {.num_steps = 1, .announced = {2, 1, 0}});
  for (int32_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(outcome.ranks[static_cast<size_t>(rank)].ok());
    EXPECT_EQ(sums_of(outcome.calls[static_cast<size_t>(rank)]),
              (std::vector<std::string>{"message AR0", "message AR1", "end B1", "message AR2"}));
  }
}

// Replicas with fewer micro-batches, steps that overlap, and transports that block: every sum is
// that of its own batch.
TEST(ExecutorRuns, EarlySumsAreThoseOfTheirBatchInEverySchedule) {
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (!builder.is_training || builder.name == "text") continue;
    for (const bool is_tied : {false, true}) {
      ScheduleOptions options{
          .num_stages = 2,
          .num_micro_batches = {4, builder.name == "2bw" ? 3 : 0},
          .num_buckets = {2, 2},
          .clips_norm = is_tied,
          .num_chunks = builder.num_chunks == kAnyChunks ? 1 : builder.num_chunks,
          .communication = {.sums_early = true}};
      if (is_tied) {
        options.tied_groups = {{0, 1}};
        options.num_tied_buckets = {1, 1};
        options.num_row_tables = {2, 1};
      }
      const Result<std::vector<Schedule>> steps = build_run(builder.name, options, 3);
      ASSERT_TRUE(steps.ok()) << builder.name << ": " << steps.error().message;
      for (const std::vector<int32_t>& announced : {std::vector<int32_t>{1, 0}, {0, 1}, {0}}) {
        const RunOutcome outcome =
            run_steps(steps.value(), {.announced = announced, .decorate = make_blocking});
        for (const Status& status : outcome.ranks) {
          ASSERT_TRUE(status.ok()) << builder.name << ": " << status.error().message;
        }
      }
    }
  }
}

// Says what the executor asked for before anything was posted.
class UrgencyTransport : public ForwardingTransport {
 public:
  UrgencyTransport(Transport& inner, std::vector<std::optional<Urgency>>& asked)
      : ForwardingTransport(inner), asked_(asked) {}
  void set_urgency(std::optional<Urgency> urgency) override { asked_.push_back(urgency); }

 private:
  std::vector<std::optional<Urgency>>& asked_;
};

TEST(ExecutorRuns, TellTheTransportWhetherTransfersGoFirst) {
  for (const bool has_one_urgency : {false, true}) {
    std::vector<std::optional<Urgency>> asked;
    expect_runs(build_schedule("1f1b", {.num_stages = 1,
                                        .num_micro_batches = {1},
                                        .communication = {.has_one_urgency = has_one_urgency}})
                    .value(),
                {.num_steps = 1, .decorate = [&](int32_t /*rank*/, Transport& inner) {
                   return std::make_unique<UrgencyTransport>(inner, asked);
                 }});
    ASSERT_EQ(asked.size(), 1);
    EXPECT_EQ(asked[0], has_one_urgency ? std::optional(Urgency::kBulk) : std::nullopt);
  }
}

TEST(ExecutorRuns, KeepABoundedNumberOfSendsInFlight) {
  const int32_t count = 3 * static_cast<int32_t>(kMaxSendsInFlight);
  size_t max_sends = 0;
  expect_runs(
      build_schedule("forward-only", {.num_stages = 2, .num_micro_batches = {count}}).value(),
      {.num_steps = 2, .decorate = [&](int32_t rank, Transport& inner) {
         std::unique_ptr<Transport> transport;
         if (rank == 0) transport = std::make_unique<CountingTransport>(inner, max_sends);
         return transport;
       }});
  // Messages of the pattern kernels have 3 parts and 1 part in turn; one action is posted before
  // the oldest is collected, and the first of 17 has 3 parts.
  static_assert(kMaxSendsInFlight == 16);
  EXPECT_EQ(max_sends, 9 * 3 + 8 * 1);
}

TEST(ExecutorRuns, EndOnEveryRankWhereverATransportFails) {
  const Schedule schedule = build_schedule("1f1b", {.num_stages = 2,
                                                    .num_micro_batches = {2, 1},
                                                    .tied_groups = {{0, 1}},
                                                    .num_buckets = {2, 2},
                                                    .num_tied_buckets = {1, 1},
                                                    .clips_norm = true,
                                                    .communication = {.sums_early = true}})
                                .value();
  for (int32_t failing_rank = 0; failing_rank < 4; ++failing_rank) {
    int64_t num_calls = 1 << 20;
    int64_t num_passed = 0;
    RunOptions options{
        .num_steps = 1, .announced = {0}, .decorate = [&](int32_t rank, Transport& inner) {
          std::unique_ptr<Transport> transport;
          if (rank == failing_rank) {
            transport = std::make_unique<FailingTransport>(inner, num_calls, num_passed);
          }
          return transport;
        }};
    expect_runs(schedule, options);
    const int64_t num_calls_of_a_step = num_passed;
    EXPECT_GT(num_calls_of_a_step, 10);
    // In the second step every rank needs the one that failed in the first.
    options.num_steps = 2;
    for (num_calls = 0; num_calls < num_calls_of_a_step; ++num_calls) {
      num_passed = 0;
      const RunOutcome outcome = run_schedule(schedule, options);
      for (int32_t rank = 0; rank < 4; ++rank) {
        const Status& status = outcome.ranks[static_cast<size_t>(rank)];
        ASSERT_FALSE(status.ok()) << "rank " << rank << ", call " << num_calls;
        const std::string cause = rank == failing_rank ? ": the cable was cut" : " failed";
        ASSERT_TRUE(status.error().message.ends_with(cause)) << status.error().message;
        // "RA0 (activations ...): cause": the action comes first, and once.
        ASSERT_EQ(std::ranges::count(status.error().message, ':'), 1) << status.error().message;
      }
    }
  }
}

}  // namespace
}  // namespace trireme
