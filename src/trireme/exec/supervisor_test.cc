// Runs supervise() as its users do: as a process that starts processes (supervisor_test_worker).
#include "trireme/exec/supervisor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/running_supervisor.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

unsigned seed_of_this_run() {
  const char* given = std::getenv("TRIREME_SEED");
  const unsigned seed = given != nullptr ? std::stoul(given) : std::random_device()();
  std::printf("TRIREME_SEED=%u\n", seed);
  return seed;
}

struct FailureCase {
  const char* name;
  const char* arguments;
  const char* last_lines;  // of three ranks, "{0}" for rank 0's name and so on, "{w}" for its work
};

class SupervisorFailures : public testing::TestWithParam<FailureCase> {};

TEST_P(SupervisorFailures, EndAllRanksAndNameTheFirstCause) {
  RunningSupervisor run(GetParam().arguments);
  EXPECT_EQ(run.wait(), 1);
  const std::string expected = fmt::format(
      fmt::runtime(GetParam().last_lines), fmt::arg("r0", "rank 0 (stage 0, replica 0)"),
      fmt::arg("r1", "rank 1 (stage 1, replica 0)"), fmt::arg("r2", "rank 2 (stage 0, replica 1)"),
      fmt::arg("w0", "was in RG1 (gradients of micro-batch 1 from rank 1)"),
      fmt::arg("w1", "was in RG1 (gradients of micro-batch 1 from rank 2)"),
      fmt::arg("w2", "was in RG1 (gradients of micro-batch 1 from rank 3)"));
  EXPECT_THAT(run.err(), EndsWith("\n" + expected));
  expect_all_gone(run.pids());
}

INSTANTIATE_TEST_SUITE_P(
    Supervisor, SupervisorFailures,
    testing::Values(FailureCase{"Killed", "3 wait 2:kill",
                                "{r2} died: killed by signal 9 (SIGKILL)\n{r0} {w0}\n{r1} {w1}\n"},
                    FailureCase{"RankZeroKilled", "3 wait 0:kill",
                                "{r0} died: killed by signal 9 (SIGKILL)\n{r1} {w1}\n{r2} {w2}\n"},
                    FailureCase{"Failed", "3 wait 1:fail",
                                "{r1} failed: the loss of step 3 is nan\n{r0} {w0}\n{r2} {w2}\n"},
                    FailureCase{"FailedByTheDeathOfAnother", "3 wait 0:suffer 1:kill",
                                "{r1} died: killed by signal 9 (SIGKILL)\n{r0} {w0}\n{r2} {w2}\n"},
                    FailureCase{"Exited", "3 wait 1:exit3",
                                "{r1} died: exited with status 3\n{r0} {w0}\n{r2} {w2}\n"},
                    FailureCase{"ExitedWithoutFinishing", "3 wait 1:silent0",
                                "{r1} died: exited with status 0 before it had finished\n"
                                "{r0} {w0}\n{r2} {w2}\n"},
                    FailureCase{"CrashedAfterFinishing", "3 wait 1:crash_late",
                                "{r1} died: killed by signal 6 (SIGABRT) after it had finished\n"
                                "{r0} {w0}\n{r2} {w2}\n"},
                    FailureCase{"HungUp", "3 wait 1:hang_up",
                                "{r1} died: its control connection ended\n{r0} {w0}\n{r2} {w2}\n"},
                    FailureCase{"SurvivorStopped", "3 wait 1:stop 2:kill_when_1_is_stopped",
                                "{r2} died: killed by signal 9 (SIGKILL)\n{r0} {w0}\n"
                                "{r1} did not say what it was doing\n"},
                    FailureCase{"SurvivorIgnoresSigterm", "3 wait 0:stubborn 2:kill",
                                "{r2} died: killed by signal 9 (SIGKILL)\n{r0} {w0}\n{r1} {w1}\n"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(Supervisor, ARankThatDiesBeforeItConnectsIsNamed) {
  RunningSupervisor run("1 exit4");
  EXPECT_EQ(run.wait(), 1);
  EXPECT_EQ(run.err(), "rank 0 (stage 0, replica 0) died: exited with status 4\n");
}

TEST(Supervisor, AMissingProgramIsOneSentence) {
  RunningSupervisor run("2 --program /nowhere/worker wait");
  EXPECT_EQ(run.wait(), 2);
  EXPECT_EQ(run.err(), "cannot start /nowhere/worker: No such file or directory\n");
  EXPECT_EQ(run.out(), "");
}

TEST(Supervisor, ShowsTheProgressOfRankZeroAndReturnsZero) {
  RunningSupervisor run("3 train");
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(),
            "step 1/3  loss 4.000  items/s 2k  eta 0:01\nstep 3/3  loss 1.333  items/s 2k\n");
  expect_all_gone(run.pids());
}

TEST(Supervisor, ShowsNoProgressWhenQuiet) {
  RunningSupervisor run("2 --quiet train");
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "");
}

TEST(Supervisor, RewritesOneLineOnATerminal) {
  RunningSupervisor run("1 train", Output::kTerminal);
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.out(), StartsWith("\r\x1b[Kstep 1/3  loss 4.000  items/s 2k  eta 0:01\r"));
  EXPECT_THAT(run.out(), EndsWith("\r\x1b[Kstep 3/3  loss 1.333  items/s 2k\r\n"));
}

TEST(Supervisor, GivesEachWorkerItsPlaceInTheRun) {
  RunningSupervisor run("2 finish 1:environment");
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.err(), HasSubstr("[rank 1] RANK=1\n[rank 1] LOCAL_RANK=1\n"
                                   "[rank 1] WORLD_SIZE=2\n[rank 1] LOCAL_WORLD_SIZE=2\n"
                                   "[rank 1] OMP_NUM_THREADS=3\n[rank 1] OMP_WAIT_POLICY=passive\n"
                                   "[rank 1] MORE=yes\n[rank 1] stdin is empty\n"));
}

TEST(Supervisor, AWorkerThatDoesNotExitAfterAllHaveFinishedIsKilledWithANote) {
  RunningSupervisor run("2 finish 1:linger");
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.err(), EndsWith("\nrank 1 (stage 1, replica 0) had finished but did not exit "
                                  "within 0.3 s, so it was killed\n"));
  expect_all_gone(run.pids());
}

TEST(Supervisor, WhatAWorkerHasStartedEndsWithIt) {
  RunningSupervisor run("1 parent");
  const std::vector<pid_t> pids = run.read_pids(2, 1);
  EXPECT_EQ(run.wait(), 0);
  const Clock::time_point deadline = Clock::now() + kDeadline;
  while (is_alive(pids[1]) && Clock::now() < deadline) ::poll(nullptr, 0, 1);
  EXPECT_FALSE(is_alive(pids[1]));
}

TEST(Supervisor, ASignalEndsAllRanksWithItsStatus) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    RunningSupervisor run("3 wait");
    const std::vector<pid_t> pids = run.read_pids(3);
    run.signal(number);
    EXPECT_EQ(run.wait(), 128 + number);
    EXPECT_THAT(run.err(), Not(HasSubstr("died")));
    expect_all_gone(pids);
  }
}

TEST(Supervisor, ASignalKillsRanksThatIgnoreIt) {
  RunningSupervisor run("2 stubborn");
  const std::vector<pid_t> pids = run.read_pids(2);
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(), 130);
  expect_all_gone(pids);
}

TEST(Supervisor, ASecondSignalKillsAtOnce) {
  RunningSupervisor run("2 --grace 600 stubborn");
  const std::vector<pid_t> pids = run.read_pids(2);
  run.signal(SIGINT);
  run.signal(SIGTERM);  // another number: two of one would be merged while pending
  const int status = run.wait();
  EXPECT_TRUE(status == 130 || status == 143) << status;
  expect_all_gone(pids);
}

TEST(Supervisor, NoRankOutlivesAKilledSupervisor) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // the orphans become this process's children
  RunningSupervisor run("3 stubborn");
  const std::vector<pid_t> pids = run.read_pids(3);
  run.end(SIGKILL);
  for (const pid_t pid : pids) {
    int status = 0;
    EXPECT_EQ(wait_until(pid, Clock::now() + kDeadline, status), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Supervisor, EndsInTimeThoughNobodyReadsItsOutput) {
  RunningSupervisor run("2 babble");
  const std::vector<pid_t> pids = run.read_pids(2);
  EXPECT_TRUE(run.wait_for_unread(20000));  // the rest of the pipe fills by itself
  run.signal(SIGINT);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(run.wait_without_reading(), 130);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  expect_all_gone(pids);
}

TEST(Supervisor, AReaderThatGoesAwayDoesNotEndTheRun) {
  RunningSupervisor run("2 --quiet train");
  run.close_outputs();
  EXPECT_EQ(run.wait(), 0);
}

TEST(Supervisor, StopsAndContinuesItsRanksWithItself) {
  RunningSupervisor run("2 wait");
  const std::vector<pid_t> pids = run.read_pids(2);
  run.signal(SIGTSTP);
  EXPECT_TRUE(wait_for_state(run.pid(), 'T'));
  for (const pid_t pid : pids) EXPECT_TRUE(wait_for_state(pid, 'T'));
  run.signal(SIGCONT);
  for (const pid_t pid : pids) EXPECT_TRUE(wait_for_state(pid, 'S'));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 143);
  expect_all_gone(pids);
}

// A rank that is killed from outside at any moment is named, and nobody survives.
TEST(Supervisor, ARankKilledAtAnyMomentIsNamedAndNobodySurvives) {
  std::mt19937 random(seed_of_this_run());
  for (int round = 0; round < 20; ++round) {
    RunningSupervisor run("4 chatter");
    const std::vector<pid_t> pids = run.read_pids(4);
    const auto rank = static_cast<size_t>(round % 4);
    const Clock::time_point moment = Clock::now() + std::chrono::microseconds(random() % 5000);
    while (Clock::now() < moment) {
    }
    ::kill(run.pid_of_rank(rank), SIGKILL);
    EXPECT_EQ(run.wait(), 1);
    EXPECT_THAT(run.err(), HasSubstr(fmt::format("\nrank {0} (stage {1}, replica {2}) died: "
                                                 "killed by signal 9 (SIGKILL)\n",
                                                 rank, rank % 2, rank / 2)));
    expect_all_gone(pids);
  }
}

}  // namespace
}  // namespace trireme
