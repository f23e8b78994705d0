#include "trireme/exec/executor.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/pattern_kernels.h"
#include "trireme/exec/run_ranks.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

Schedule verified(std::string_view text) {
  Schedule schedule = parse_schedule(text).value();
  const Status status = verify_schedule(schedule);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return schedule;
}

// Passes calls on until `num_calls` were made; the next one fails and so do all after it.
class FailingTransport : public Transport {
 public:
  FailingTransport(Transport& inner, int64_t num_calls) : inner_(inner), calls_left_(num_calls) {}

  Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) override {
    return inner_.join(name, std::move(members));
  }
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    if (fails()) return kError;
    return inner_.post_send(peer, tag, bytes);
  }
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    if (fails()) return kError;
    return inner_.post_receive(peer, tag, bytes);
  }
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    if (fails()) return kError;
    return inner_.post_all_reduce(communicator, dtype, bytes);
  }
  Status wait(Ticket ticket) override {
    if (fails()) return kError;
    return inner_.wait(ticket);
  }
  [[nodiscard]] int64_t calls_left() const { return calls_left_; }

 private:
  const Error kError{"the cable was cut"};
  bool fails() { return calls_left_ == 0 || --calls_left_ < 0; }

  Transport& inner_;
  int64_t calls_left_;
};

struct RunOptions {
  int32_t num_steps = 2;
  int32_t failing_rank = -1;
  int64_t num_calls = 1 << 20;  // that the failing rank's transport passes on
};

struct RunOutcome {
  std::vector<Status> ranks;
  std::vector<std::vector<std::string>> calls;  // of the kernels, by rank
  int64_t num_calls = 0;                        // of the failing rank's transport
};

// Runs the steps with a thread a rank. A rank that fails shuts the network down, as a worker does.
RunOutcome run(const Schedule& schedule, const RunOptions& options = {}) {
  const int32_t count = num_ranks(schedule);
  const auto network = make_loopback_network(count);
  RunOutcome outcome;
  outcome.calls.resize(static_cast<size_t>(count));
  outcome.ranks = run_ranks(count, [&](int32_t rank) -> Status {
    const std::unique_ptr<Transport> loopback = make_loopback_transport(network, rank);
    FailingTransport transport(*loopback,
                               rank == options.failing_rank ? options.num_calls : 1 << 20);
    PatternKernels kernels(schedule, rank);
    Executor executor(rank, kernels, transport);
    Status status = executor.join(schedule);
    for (int32_t step = 0; step < options.num_steps && status.ok(); ++step) {
      status = executor.run_step(schedule);
    }
    if (!status.ok()) shut_down(*network, fmt::format("rank {} failed", rank));
    outcome.calls[static_cast<size_t>(rank)] = kernels.calls();
    if (rank == options.failing_rank) {
      outcome.num_calls = options.num_calls - transport.calls_left();
    }
    return status;
  });
  return outcome;
}

TEST(Executor, AsksForReceivesAheadAndCompletesThemInTheOrderOfTheList) {
  const RunOutcome outcome =
      run(verified("schedule 1f1b stages=2 micro-batches=3 look-ahead=1 clip-norm\n"
                   "rank 0: F0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 RG2 B2 SC0 SC1 U\n"
                   "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 SC0 SC1 U\n"),
          {.num_steps = 1});
  for (const Status& status : outcome.ranks) EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(fmt::format("{}", fmt::join(outcome.calls[0], ", ")),
            "message RG0, F0, message SA0, F1, message SA1, "
            "message RG1, complete RG0, B0, F2, message SA2, "
            "message RG2, complete RG1, B1, complete RG2, B2, "
            "message SC0, complete SC0, message SC1, complete SC1, U");
  EXPECT_EQ(fmt::format("{}", fmt::join(outcome.calls[1], ", ")),
            "message RA0, message RA1, complete RA0, F0, B0, message SG0, "
            "message RA2, complete RA1, F1, B1, message SG1, "
            "complete RA2, F2, B2, message SG2, "
            "message SC0, complete SC0, message SC1, complete SC1, U");
}

// Everything but the calls for messages, which the look-ahead moves.
std::vector<std::string> expected_calls(const std::vector<Action>& actions, int32_t num_steps) {
  std::vector<std::string> calls;
  for (int32_t step = 0; step < num_steps; ++step) {
    for (const Action& action : actions) {
      if (is_send(action.kind)) continue;
      calls.push_back(is_compute(action.kind) ? to_text(action) : "complete " + to_text(action));
    }
  }
  return calls;
}

TEST(Executor, MovesEveryMessageOfEveryScheduleOfAGrid) {
  for (const ScheduleBuilder& builder : schedule_builders()) {
    for (int32_t num_stages : {1, 2, 3, 4}) {
      for (const std::vector<int32_t>& counts :
           {std::vector<int32_t>{1}, {5}, {3, 3}, {4, 1}, {2, 0}}) {
        ScheduleOptions options{
            .num_stages = num_stages, .num_micro_batches = counts, .clips_norm = true};
        if (num_stages > 1) options.tied_groups = {{0, num_stages - 1}};
        if (num_stages > 2) options.tied_groups.push_back({1, 2});
        if (counts.size() > 1) options.num_buckets.assign(static_cast<size_t>(num_stages), 2);
        const Schedule schedule = build_schedule(builder.name, options).value();
        const RunOutcome outcome = run(schedule);
        for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
          ASSERT_TRUE(outcome.ranks[rank].ok()) << to_text(schedule) << "rank " << rank << ": "
                                                << outcome.ranks[rank].error().message;
          std::vector<std::string> calls = outcome.calls[rank];
          std::erase_if(calls, [](const std::string& call) { return call.starts_with("message"); });
          ASSERT_EQ(calls, expected_calls(schedule.ranks[rank], 2)) << to_text(schedule);
        }
      }
    }
  }
}

TEST(Executor, RunsChunksThatGoRoundTheStages) {
  const RunOutcome outcome =
      run(verified("schedule interleaved stages=2 chunks=2 micro-batches=2 look-ahead=2\n"
                   "rank 0: F0 SA0 F1 SA1 RA0.1 F0.1 SA0.1 RA1.1 F1.1 SA1.1 "
                   "RG0.1 B0.1 SG0.1 RG1.1 B1.1 SG1.1 RG0 B0 RG1 B1 SC0 U\n"
                   "rank 1: RA0 F0 SA0 RA1 F1 SA1 RA0.1 F0.1 B0.1 SG0.1 RA1.1 F1.1 B1.1 SG1.1 "
                   "RG0 B0 SG0 RG1 B1 SG1 SC0 U\n"));
  for (const Status& status : outcome.ranks) EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(Executor, HoldsMoreSendsThanItKeepsInFlight) {
  const Schedule schedule =
      build_schedule(
          "forward-only",
          {.num_stages = 2, .num_micro_batches = {3 * static_cast<int32_t>(kMaxSendsInFlight)}})
          .value();
  for (const Status& status : run(schedule).ranks) {
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

TEST(Executor, EndsEveryRankWhereverATransportFails) {
  const Schedule schedule = build_schedule("1f1b", {.num_stages = 2,
                                                    .num_micro_batches = {2, 1},
                                                    .tied_groups = {{0, 1}},
                                                    .num_buckets = {1, 1},
                                                    .clips_norm = true})
                                .value();
  for (int32_t failing_rank = 0; failing_rank < 4; ++failing_rank) {
    const int64_t num_calls =
        run(schedule, {.num_steps = 1, .failing_rank = failing_rank}).num_calls;
    EXPECT_GT(num_calls, 10);
    for (int64_t call = 0; call < num_calls; ++call) {
      // In the second step every rank needs the one that failed in the first.
      const RunOutcome outcome =
          run(schedule, {.num_steps = 2, .failing_rank = failing_rank, .num_calls = call});
      for (int32_t rank = 0; rank < 4; ++rank) {
        const Status& status = outcome.ranks[static_cast<size_t>(rank)];
        ASSERT_FALSE(status.ok()) << "rank " << rank << ", call " << call;
        const std::string cause = rank == failing_rank ? ": the cable was cut" : " failed";
        ASSERT_TRUE(status.error().message.ends_with(cause)) << status.error().message;
        // "RA0 (activations ...): cause": the action comes first, and once.
        ASSERT_EQ(std::ranges::count(status.error().message, ':'), 1) << status.error().message;
      }
    }
  }
}

class FailingKernels : public PatternKernels {
 public:
  FailingKernels(const Schedule& schedule, int32_t rank, Action failing)
      : PatternKernels(schedule, rank), failing_(failing) {}
  Status compute(const Action& action) override {
    if (action == failing_) return Error{"loss of micro-batch 1 is nan"};
    return PatternKernels::compute(action);
  }

 private:
  Action failing_;
};

TEST(Executor, PutsTheActionBeforeTheMessageOfAKernel) {
  const Schedule schedule =
      verified("schedule one stages=1 micro-batches=2\nrank 0: F0 B0 F1 B1 SC0 U\n");
  const auto loopback = make_loopback_transport(make_loopback_network(1), 0);
  FailingKernels kernels(schedule, 0, {ActionKind::kForward, 1});
  Executor executor(0, kernels, *loopback);
  ASSERT_TRUE(executor.join(schedule).ok());
  EXPECT_EQ(executor.run_step(schedule).error().message,
            "F1 (forward of micro-batch 1): loss of micro-batch 1 is nan");
}

class ManyPartsKernels : public PatternKernels {
 public:
  using PatternKernels::PatternKernels;
  Result<Message> message(const Action& action) override {
    TRIREME_TRY(Message message, PatternKernels::message(action));
    message.parts.resize(4097);
    return message;
  }
};

TEST(Executor, RefusesAMessageWithMoreTensorsThanTagsHaveRoomFor) {
  const Schedule schedule =
      verified("schedule one stages=1 micro-batches=1\nrank 0: F0 B0 SC0 U\n");
  const auto loopback = make_loopback_transport(make_loopback_network(1), 0);
  ManyPartsKernels kernels(schedule, 0);
  Executor executor(0, kernels, *loopback);
  ASSERT_TRUE(executor.join(schedule).ok());
  EXPECT_EQ(executor.run_step(schedule).error().message,
            "SC0 (losses and item counts of all ranks): the message has 4097 tensors, the executor "
            "moves at "
            "most 4096");
}

TEST(Executor, TellsWhatItWaitsForWhileItRuns) {
  const Schedule schedule =
      build_schedule("1f1b", {.num_stages = 2, .num_micro_batches = {1}}).value();
  const auto network = make_loopback_network(2);
  const auto loopback = make_loopback_transport(network, 1);
  PatternKernels kernels(schedule, 1);
  Executor executor(1, kernels, *loopback);
  EXPECT_EQ(executor.current_action(), "between steps");
  Status status;
  std::jthread thread([&] {
    status = executor.join(schedule);
    if (status.ok()) status = executor.run_step(schedule);
  });
  const std::string waiting = "RA0 (activations of micro-batch 0 from rank 0)";
  while (executor.current_action() != waiting) std::this_thread::yield();
  shut_down(*network, "rank 0 died");
  thread.join();
  EXPECT_EQ(status.error().message, waiting + ": rank 0 died");
  EXPECT_EQ(executor.current_action(), waiting);
}

}  // namespace
}  // namespace trireme
