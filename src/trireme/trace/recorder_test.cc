#include "trireme/trace/recorder.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trireme/trace/part.h"
#include "trireme/trace/timeline_files.h"

namespace trireme {
namespace {

using enum ActionKind;

template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() : folder_(testing::TempDir() + "recorder_XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/run.timeline";
  }
  ~RecorderTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Recorder> make(int32_t rank, int64_t num_events = 100, int32_t num_steps = 10) {
    return Recorder::create({.path = part_path(path_, rank),
                             .num_steps = num_steps,
                             .num_events = num_events,
                             .rank = rank,
                             .host = "node7",
                             .clock = "c",
                             .header = {.builder = "1f1b", .num_stages = 2}})
        .value();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(RecorderTest, KeepsTheLastStepsWhole) {
  const std::unique_ptr<Recorder> recorder = make(0, /*num_events=*/8, /*num_steps=*/10);
  for (int32_t step = 1; step <= 9; ++step) {
    recorder->set_step(step);
    for (int32_t i = 0; i < 3; ++i)
      recorder->end(recorder->begin(EventClass::kForward, {kForward, i}));
  }
  const Timeline timeline = join_parts({recorder->part()}).value();
  // The ring has the last 8 of 27 events, of which the oldest may be half written: one of step 7.
  ASSERT_EQ(timeline.events.size(), 6);
  EXPECT_EQ(timeline.dropped_events, 21);
  EXPECT_EQ(timeline.events[0].step, 8);
  EXPECT_EQ(timeline.events[0].begin, 0);
  EXPECT_EQ(timeline.events[5].step, 9);
  EXPECT_EQ(timeline.events[5].action, (Action{kForward, 2}));
  EXPECT_EQ(timeline.builder, "1f1b");
  EXPECT_EQ(timeline.hosts, (std::vector<std::string>{"node7"}));
  EXPECT_GT(timeline.event_cost, 0);
  EXPECT_EQ(parse_timeline(to_text(timeline)).value(), timeline);
}

TEST_F(RecorderTest, LeavesOutStepsThatNobodyAskedFor) {
  const std::unique_ptr<Recorder> recorder = make(0, /*num_events=*/100, /*num_steps=*/2);
  for (int32_t step = 1; step <= 5; ++step) {
    recorder->set_step(step);
    recorder->end(recorder->begin(EventClass::kForward, {kForward, 0}));
  }
  const Timeline timeline = join_parts({recorder->part()}).value();
  ASSERT_EQ(timeline.events.size(), 2);
  EXPECT_EQ(timeline.events[0].step, 4);
}

TEST_F(RecorderTest, IgnoresTheEndOfAnEventThatTheRingHasLost) {
  const std::unique_ptr<Recorder> recorder = make(0, 2);
  const int64_t lost = recorder->begin(EventClass::kForward, {kForward, 0});
  for (int32_t i = 1; i < 3; ++i) recorder->begin(EventClass::kBackward, {kBackward, i});
  recorder->end(lost);
  const Timeline timeline = join_parts({recorder->part()}).value();
  ASSERT_EQ(timeline.events.size(), 1);
  EXPECT_EQ(timeline.events[0].end, kNotOver);
}

TEST_F(RecorderTest, LeavesWhatAKilledProcessWasDoing) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::unique_ptr<Recorder> recorder = make(1);
    recorder->set_step(7);
    recorder->end(recorder->begin(EventClass::kForward, {kForward, 3}));
    recorder->begin(EventClass::kWait, {kReceiveActivation, 4}, /*peer=*/0);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Result<Timeline> read = read_timeline(path_);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const std::string text = to_text(read.value());
  EXPECT_NE(text.find("rank 1 F3 0 "), std::string::npos) << text;
  EXPECT_NE(text.find(" - step=7 peer=0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 wait RA4 "), std::string::npos) << text;
}

TEST_F(RecorderTest, PartsOfAllRanksBecomeOneTimeline) {
  std::ofstream(part_path(path_, 7)) << "of an earlier run";
  for (const int32_t rank : {1, 0}) {
    const std::unique_ptr<Recorder> recorder = make(rank);
    recorder->end(recorder->begin(EventClass::kUpdate, {kUpdate}));
  }
  const Timeline timeline = join_part_files(path_).value();
  ASSERT_EQ(timeline.events.size(), 2);
  EXPECT_EQ(timeline.events[0].rank, 0);
  EXPECT_EQ(timeline.events[1].rank, 1);
  ASSERT_TRUE(write_timeline(path_, timeline).ok());
  EXPECT_EQ(read_timeline(path_).value(), timeline);
  remove_part_files(path_);
  EXPECT_FALSE(std::filesystem::exists(part_path(path_, 0)));
}

TEST_F(RecorderTest, RefusesPartsThatAreNone) {
  const std::unique_ptr<Recorder> recorder = make(0);
  recorder->end(recorder->begin(EventClass::kForward, {kForward, 0}));
  const std::span<const std::byte> part = recorder->part();
  const std::string damaged = "a part of the timeline is damaged or of another version";
  EXPECT_EQ(message_of(join_parts({})), "a timeline has at least one part");
  EXPECT_EQ(message_of(join_parts({part.first(100)})), damaged);
  EXPECT_EQ(message_of(join_parts({part.first(part.size() - 40)})), damaged);
  EXPECT_EQ(message_of(join_parts({part, part})), "there are two parts of rank 0, or no such rank");
  std::vector<std::byte> copy(part.begin(), part.end());
  PartEvent event;
  std::memcpy(&event, &copy[sizeof(PartHeader)], sizeof event);
  event.kind = 200;
  std::memcpy(&copy[sizeof(PartHeader)], &event, sizeof event);
  EXPECT_EQ(message_of(join_parts({copy})), damaged);
  EXPECT_EQ(
      message_of(join_part_files(path_ + "x")),
      "there is no " + path_ + "x, and no part " + path_ + "x.rank0 of a run that was killed");
  EXPECT_EQ(message_of(Recorder::create({.path = folder_ + "/none/x", .num_events = 2})),
            "cannot make " + folder_ +
                "/none/x, a file of 520 bytes for the timeline: No such file or directory");
}

}  // namespace
}  // namespace trireme
