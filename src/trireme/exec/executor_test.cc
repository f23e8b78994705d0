#include "trireme/exec/executor.h"

#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/pattern_kernels.h"
#include "trireme/exec/run_schedule.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

Schedule verified(std::string_view text) {
  Schedule schedule = parse_schedule(text).value();
  const Status status = verify_schedule(schedule);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return schedule;
}

TEST(Executor, AsksForReceivesAheadAndCompletesThemInTheOrderOfTheList) {
  const RunOutcome outcome =
      run_schedule(verified("schedule 1f1b stages=2 micro-batches=3 look-ahead=1 clip-norm\n"
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

TEST(Executor, LetsPassesRunWhileACollectiveTravels) {
  const RunOutcome outcome = run_schedule(
      verified("schedule x stages=2 micro-batches=2,2 look-ahead=2 buckets=1,1 tied=0+1\n"
               "rank 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 TR0 SC0 AR0 U\n"
               "rank 1: RA0 F0 RA1 F1 SC0 B0 SG0 B1 SG1 TR0 AR0 U\n"
               "rank 2: F0 SA0 F1 SA1 RG0 B0 RG1 B1 TR0 SC0 AR0 U\n"
               "rank 3: RA0 F0 RA1 F1 SC0 B0 SG0 B1 SG1 TR0 AR0 U\n"),
      {.num_steps = 1});
  for (const Status& status : outcome.ranks) EXPECT_TRUE(status.ok()) << status.error().message;
  // SC0 is issued before the backwards and needed by the update; AR0 needs the tied gradients.
  EXPECT_EQ(fmt::format("{}", fmt::join(outcome.calls[1], ", ")),
            "message RA0, message RA1, complete RA0, F0, complete RA1, F1, message SC0, "
            "B0, message SG0, B1, message SG1, message TR0, complete TR0, message AR0, "
            "complete SC0, complete AR0, U");
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
    message.parts.resize(2049);
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
            "SC0 (losses and item counts of all ranks): the message has 2049 tensors, the executor "
            "moves at "
            "most 2048");
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
