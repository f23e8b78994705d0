#include "trireme/exec/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/exec/line_splitter.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Progress::TimePoint kStart{};

std::string step(int64_t number, int64_t steps) {
  return fmt::format(
      R"({{"event":"step","step":{},"steps":{},"loss":3.2143,"items":4096,"seconds":0.4,"lr":0.1}})",
      number, steps);
}

TEST(Progress, AStepIsOneLine) {
  Progress progress(ProgressStyle::kLines, 0);
  EXPECT_EQ(progress.show(step(12, 200), kStart),
            "step 12/200  loss 3.214  items/s 10.2k  eta 1:15\n");
}

TEST(Progress, AbsentKeysLeaveTheirPartOut) {
  const auto line = [](std::string_view published) {
    return Progress(ProgressStyle::kLines, 0).show(published, kStart);
  };
  EXPECT_EQ(line(R"({"event":"step","step":1})"), "step 1\n");
  EXPECT_EQ(line(R"({"event":"step","step":1,"steps":2})"), "step 1/2\n");
  EXPECT_EQ(line(R"({"event":"step","step":1,"steps":2,"seconds":65})"), "step 1/2  eta 1:05\n");
  EXPECT_EQ(line(R"({"event":"step","step":1,"items":10,"seconds":0})"), "step 1\n");
  EXPECT_EQ(line(R"({"event":"step","step":1,"loss":null})"), "step 1\n");
  EXPECT_EQ(line(R"({"event":"step","step":1,"loss":12345.6})"), "step 1  loss 1.235e+04\n");
  EXPECT_EQ(line(R"({"event":"eval","step":5,"eval_loss":3.1})"), "step 5  eval loss 3.100\n");
  EXPECT_EQ(line(R"({"event":"eval","eval_loss":3.1})"), "eval loss 3.100\n");
  EXPECT_EQ(line(R"({"event":"note","text":"saved\u001b[2J out"})"), "saved [2J out\n");
}

TEST(Progress, WhatIsNoEventIsIgnored) {
  Progress progress(ProgressStyle::kLines, 0);
  for (const char* published :
       {"", "{", "[1]", "7", R"({"event":7})", R"({"event":"step"})", R"({"event":"eval"})",
        R"({"event":"step","step":"x"})", R"({"event":"other","step":1})", "\xff\xfe"}) {
    EXPECT_EQ(progress.show(published, kStart), "") << published;
  }
  EXPECT_EQ(progress.end(), "");
}

TEST(Progress, PlainLinesComeEverMoreRarelyAndTheLastAlways) {
  Progress progress(ProgressStyle::kLines, 0);
  int num_lines = 0;
  std::string last;
  // Ten hours, a step each second.
  for (int i = 1; i <= 36000; ++i) {
    const std::string text = progress.show(step(i, 36000), kStart + seconds(i));
    if (text.empty()) continue;
    ++num_lines;
    last = text;
  }
  // 50 lines of the first 100 s, about 50 x ln(3000 / 100) to the first minute's pause at 3000 s,
  // then one a minute.
  EXPECT_NEAR(num_lines, 50 + 170 + 550, 40);
  EXPECT_EQ(last, "step 36000/36000  loss 3.214  items/s 10.2k\n");
  EXPECT_EQ(progress.end(), "");
}

TEST(Progress, AStepThatWasNotDueIsShownAtTheEnd) {
  Progress progress(ProgressStyle::kLines, 0);
  EXPECT_EQ(progress.show(R"({"event":"step","step":1})", kStart), "step 1\n");
  EXPECT_EQ(progress.show(R"({"event":"step","step":2})", kStart + milliseconds(1999)), "");
  EXPECT_EQ(progress.end(), "step 2\n");
}

TEST(Progress, ATerminalRewritesOneLineAndKeepsNotesAboveIt) {
  Progress progress(ProgressStyle::kTerminal, 80);
  EXPECT_EQ(progress.show(R"({"event":"note","text":"start"})", kStart), "start\n");
  EXPECT_EQ(progress.hide(), "");
  EXPECT_EQ(progress.show(R"({"event":"step","step":1})", kStart), "\r\x1b[Kstep 1");
  EXPECT_EQ(progress.show(R"({"event":"step","step":2})", kStart + milliseconds(99)), "");
  EXPECT_EQ(progress.show(R"({"event":"step","step":3})", kStart + milliseconds(100)),
            "\r\x1b[Kstep 3");
  EXPECT_EQ(progress.show(R"({"event":"note","text":"saved"})", kStart), "\r\x1b[Ksaved\nstep 3");
  EXPECT_EQ(progress.hide(), "\r\x1b[K");
  EXPECT_EQ(progress.unhide(), "step 3");
  EXPECT_EQ(progress.end(), "\r\x1b[Kstep 3\n");
  EXPECT_EQ(progress.hide(), "");
}

TEST(Progress, ATerminalLineIsCutSoThatItDoesNotWrap) {
  Progress progress(ProgressStyle::kTerminal, 20);
  EXPECT_EQ(progress.show(step(12, 200), kStart), "\r\x1b[Kstep 12/200  loss 3");
}

TEST(Progress, QuietShowsNothing) {
  Progress progress(ProgressStyle::kQuiet, 0);
  EXPECT_EQ(progress.show(step(1, 2), kStart), "");
  EXPECT_EQ(progress.show(R"({"event":"note","text":"x"})", kStart), "");
  EXPECT_EQ(progress.end(), "");
}

TEST(Progress, RatesHaveThreeDigitsAndDurationsHaveColons) {
  EXPECT_EQ(rate_text(0.25), "0.25");
  EXPECT_EQ(rate_text(532.4), "532");
  EXPECT_EQ(rate_text(999.6), "1k");
  EXPECT_EQ(rate_text(10240), "10.2k");
  EXPECT_EQ(rate_text(1254000), "1.25M");
  EXPECT_EQ(rate_text(99960), "100k");
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(31.4), "0:31");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(10807), "3:00:07");
}

TEST(LineSplitter, LinesCarryTheirRankAndTheRestWaits) {
  LineSplitter lines("[rank 2] ");
  EXPECT_EQ(lines.add("one\ntw"), "[rank 2] one\n");
  EXPECT_EQ(lines.add("o\r\n\n10%\r20%"), "[rank 2] two\n[rank 2] 10%\n");
  EXPECT_EQ(lines.end(), "[rank 2] 20%\n");
  EXPECT_EQ(lines.end(), "");
}

TEST(LineSplitter, ALineThatNeverEndsIsCut) {
  LineSplitter lines("");
  const std::string text = lines.add(std::string(100000, 'x'));
  EXPECT_EQ(text, std::string(65536, 'x') + "\n");
}

}  // namespace
}  // namespace trireme
