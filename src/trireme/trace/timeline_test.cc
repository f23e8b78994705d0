#include "trireme/trace/timeline.h"

#include <algorithm>
#include <span>

#include <gtest/gtest.h>

namespace trireme {
namespace {

template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

constexpr std::string_view kText =
    "timeline measured 1f1b stages=2 replicas=2 chunks=2 hosts=a,b host-of-rank=0,0,1,1 "
    "peak-bytes=4096,2048,4096,0 dropped=7 event-cost=38\n"
    "rank 0 input F0 0 120 step=12\n"
    "rank 0 F3.1 120 1200 step=12\n"
    "rank 0 wait RG0 1200 3400 step=12 peer=1\n"
    "rank 0 RG0 1200 3400 step=12 peer=1 bytes=512\n"
    "rank 1 B0 3400 -\n"
    "rank 2 wait SC1 9 10\n"
    "rank 3 AR2 0 4611686018427387904 bytes=64\n"
    "rank 3 U 5 5\n"
    "rank 3 evaluation F0 5 9 step=12\n";

TEST(Timeline, TextAndParserAreInverses) {
  for (std::string_view text : {kText, std::string_view("timeline simulated gpipe stages=1\n")}) {
    const Result<Timeline> timeline = parse_timeline(text);
    ASSERT_TRUE(timeline.ok()) << timeline.error().message;
    EXPECT_EQ(to_text(timeline.value()), text);
  }
  const Timeline timeline = parse_timeline(kText).value();
  EXPECT_EQ(timeline.hosts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(timeline.peak_bytes[1], 2048);
  EXPECT_EQ(timeline.events[1], (TimelineEvent{.rank = 0,
                                               .event_class = EventClass::kForward,
                                               .action = {ActionKind::kForward, 3, 1},
                                               .begin = 120,
                                               .end = 1200,
                                               .step = 12}));
  EXPECT_EQ(timeline.events[2].event_class, EventClass::kWait);
  EXPECT_EQ(timeline.events[4].end, kNotOver);
}

TEST(Timeline, ThatIsCutOffAnywhereIsReadUpToItsLastWholeLine) {
  const Timeline whole = parse_timeline(kText).value();
  const size_t header_size = kText.find('\n') + 1;
  for (size_t size = 0; size < kText.size(); ++size) {
    const Result<Timeline> cut = parse_timeline(kText.substr(0, size));
    ASSERT_EQ(cut.ok(), size >= header_size) << size;
    if (!cut.ok()) {
      EXPECT_EQ(cut.error().message, "line 1: this is no timeline: it has no whole line");
      continue;
    }
    const auto num_lines = std::ranges::count(kText.substr(0, size), '\n');
    ASSERT_EQ(cut.value().events.size(), static_cast<size_t>(num_lines - 1));
    EXPECT_TRUE(std::ranges::equal(
        cut.value().events, std::span(whole.events).first(static_cast<size_t>(num_lines - 1))));
  }
}

TEST(Timeline, ParserNamesTheLineAndWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"schedule 1f1b stages=2\n",
       "line 1: this is no timeline: its first line does not begin with \"timeline\""},
      {"timeline guessed 1f1b stages=2\n",
       "line 1: a timeline is \"measured\" or \"simulated\", not \"guessed\""},
      {"timeline measured stages=2\n", "line 1: field \"stages=\" is missing"},
      {"timeline measured 1f1b\n", "line 1: field \"stages=\" is missing"},
      {"timeline measured 1f1b stages=\n",
       "line 1: field \"stages=\" has a value that cannot be read"},
      {"timeline measured 1f1b stages=2 stages=2\n", "line 1: field \"stages\" is given twice"},
      {"timeline measured 1f1b stages=2 colour=2\n", "line 1: unknown field \"colour=2\""},
      {"timeline measured 1f1b stages=2 replicas=2147483647\n",
       "line 1: stages=2 replicas=2147483647: both are at least 1, their product at most 1048576"},
      {"timeline measured 1f1b stages=1 chunks=17\n", "line 1: chunks=17: it is between 1 and 16"},
      {"timeline measured 1f1b stages=2 peak-bytes=1\n",
       "line 1: peak-bytes= has 1 numbers for 2 ranks"},
      {"timeline measured 1f1b stages=2 peak-bytes=1,\n",
       "line 1: field \"peak-bytes=1,\" has a value that cannot be read"},
      {"timeline measured 1f1b stages=1 hosts=a\n",
       "line 1: of \"hosts=\" and \"host-of-rank=\" both are given or none"},
      {"timeline measured 1f1b stages=1 hosts=a,,b host-of-rank=0\n",
       "line 1: \"\" is no name of a host"},
      {"timeline measured 1f1b stages=1 hosts=a host-of-rank=1\n",
       "line 1: host-of-rank= names host 1 of 1"},
  };
  for (const auto& [text, message] : rows) EXPECT_EQ(message_of(parse_timeline(text)), message);
  const std::vector<std::pair<std::string, std::string>> events = {
      {"", "line 2: expected \"rank N ACTION BEGIN END\""},
      {"rank x F0 0 1", "line 2: expected \"rank N ACTION BEGIN END\""},
      {"rank 0 F0 1", "line 2: expected two times, found \"1\" and \"\""},
      {"rank 0 F0 0 -1", "line 2: expected two times, found \"0\" and \"-1\""},
      {"rank 0 F0 0 9223372036854775807", "line 2: a time is too large"},
      {"rank 0 F0 2 1",
       "line 2: rank 0 F0: it lasts from 2 to 1; times are ascending and between 0 and "
       "4611686018427387904"},
      {"rank 0 F0 0 4611686018427387905",
       "line 2: rank 0 F0: it lasts from 0 to 4611686018427387905; times are ascending and "
       "between 0 and 4611686018427387904"},
      {"rank 0 F0 0 1 color=2",
       "line 2: \"color=2\" is none of \"step=N\", \"peer=N\", \"bytes=N\""},
      {"rank 2 F0 0 1", "line 2: rank 2 F0: ranks are 0 to 1"},
      {"rank 0 SA0 0 1 peer=0", "line 2: rank 0 SA0: peer 0 is no other rank"},
      {"rank 0 SA0 0 1 peer=2", "line 2: rank 0 SA0: peer 2 is no other rank"},
      {"rank 0 F0.1 0 1", "line 2: rank 0 F0.1: the timeline has no such action; chunks=1"},
      {"rank 0 wait F0 0 1",
       "line 2: rank 0 F0: \"wait\" is followed by a transfer or a collective"},
      {"rank 0 input B0 0 1", "line 2: rank 0 B0: \"input\" is followed by a forward"},
      {"rank 0 evaluation U 0 1", "line 2: rank 0 U: \"evaluation\" is followed by a forward"},
  };
  for (const auto& [line, message] : events) {
    EXPECT_EQ(message_of(parse_timeline("timeline measured 1f1b stages=2\n" + line + "\n")),
              message);
  }
}

TEST(Timeline, VerifierRefusesWhatTheTextCannotHold) {
  Timeline timeline{.builder = "1f1b"};
  EXPECT_EQ(message_of(verify_timeline(timeline)), "");
  timeline.builder = "two words";
  EXPECT_EQ(message_of(verify_timeline(timeline)), "\"two words\" is no name of a schedule");
  timeline.builder = "1f1b";
  timeline.events = {{.event_class = EventClass::kUpdate, .action = {ActionKind::kForward}}};
  EXPECT_EQ(message_of(verify_timeline(timeline)), "rank 0 F0: its class is that of other actions");
  timeline.events = {{.step = -1}};
  EXPECT_EQ(message_of(verify_timeline(timeline)), "rank 0 F0: steps and bytes are not negative");
}

}  // namespace
}  // namespace trireme
