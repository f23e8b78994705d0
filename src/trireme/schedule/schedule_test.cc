#include "trireme/schedule/schedule.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

TEST(Action, TextAndParserAreInverses) {
  for (std::string_view text :
       {"F0", "F3.1", "B12", "B12.15", "U", "SA3", "RA3.1", "SG0", "RG7.2", "AR2", "TR1", "SC0",
        "SC1", "F2147483647", "Fc0", "Fc3.1", "R3.1", "I0", "W12.3"}) {
    const Result<Action> action = parse_action(text);
    ASSERT_TRUE(action.ok()) << action.error().message;
    EXPECT_EQ(to_text(action.value()), text);
  }
  EXPECT_EQ(parse_action("RG7.2").value(), (Action{ActionKind::kReceiveGradient, 7, 2}));
}

TEST(Action, ParserNamesTheWordAndWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"Q3",
       "unknown action \"Q3\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, SC, SX"},
      {"", "unknown action \"\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, SC, SX"},
      {"f3",
       "unknown action \"f3\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, SC, SX"},
      {"F-3",
       "unknown action \"F-3\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, SC, SX"},
      {"F", "action \"F\": F needs a number"},
      {"Fc", "action \"Fc\": Fc needs a number"},
      {"FC3",
       "unknown action \"FC3\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, SC, SX"},
      {"I3.0", "action \"I3.0\": a chunk is a number from 1 (0 is not written)"},
      {"F03", "action \"F03\": F needs a number"},
      {"F.1", "action \"F.1\": F needs a number"},
      {"F3x", "action \"F3x\": F needs a number"},
      {"SA2147483648", "action \"SA2147483648\": SA needs a number"},
      {"F3.0", "action \"F3.0\": a chunk is a number from 1 (0 is not written)"},
      {"F3.", "action \"F3.\": a chunk is a number from 1 (0 is not written)"},
      {"F3.1.2", "action \"F3.1.2\": a chunk is a number from 1 (0 is not written)"},
      {"SX1.2", "action \"SX1.2\": SX has no chunk"},
      {"AR1.2", "action \"AR1.2\": AR has no chunk"},
      {"U0", "action \"U0\": U takes no number"},
      {"\x1b[2J",
       "unknown action \"\\x1b[2J\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, SC, "
       "SX"},
      {"F3\n" + std::string(1000, 'x'),
       "action \"F3\\x0a" + std::string(54, 'x') + " [cut]\": F needs a number"}};
  for (const auto& [text, message] : rows) EXPECT_EQ(message_of(parse_action(text)), message);
}

TEST(Schedule, TextAndParserAreInverses) {
  for (std::string_view text :
       {"schedule 1f1b stages=2 micro-batches=2,1 look-ahead=2 buckets=1,0 tied=0+1 clip-norm\n"
        "rank 0: F0 SA0 F1 SA1 RG0 B0 RG1 B1 SC0 TR0 AR0 SC1 U\n"
        "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 TR0 SC1 U\n"
        "rank 2:\n",
        "schedule x stages=4 chunks=3 micro-batches=1 look-ahead=0 tied=0+1+3,1+2 evaluation\n",
        "schedule x stages=2 chunks=2 placement=v micro-batches=1 look-ahead=2\n"
        "rank 0: Fc0 F0.1 R0 I0.1 W0.1\n",
        "schedule x stages=1 micro-batches=16384 look-ahead=7\nrank 0: F0.2\n"}) {
    const Result<Schedule> schedule = parse_schedule(text);
    ASSERT_TRUE(schedule.ok()) << schedule.error().message;
    EXPECT_EQ(to_text(schedule.value()), text);
    EXPECT_EQ(parse_schedule(to_text(schedule.value())).value(), schedule.value());
  }
}

TEST(Schedule, ParserTakesFieldsInAnyOrderAndSkipsBlankLines) {
  const Result<Schedule> schedule =
      parse_schedule("\n  schedule mine evaluation  micro-batches=1 stages=1\n\nrank 0:  F0 SC0");
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(to_text(schedule.value()),
            "schedule mine stages=1 micro-batches=1 look-ahead=2 evaluation\nrank 0: F0 SC0\n");
  EXPECT_EQ(schedule.value().num_buckets, std::vector<int32_t>{0});
}

TEST(Schedule, ParserNamesLineAndWord) {
  const std::string header = "schedule x stages=1 micro-batches=1\n";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"", "line 1: expected \"schedule NAME\", found nothing"},
      {"\nschedul x", "line 2: expected \"schedule NAME\", found \"schedul\""},
      {"schedule", "line 1: expected \"schedule NAME\", found \"schedule\""},
      {"schedule x micro-batches=1", "line 1: field \"stages=\" is missing"},
      {"schedule x stages=1", "line 1: field \"micro-batches=\" is missing"},
      {"schedule x stages=1 stages=2", "line 1: field \"stages\" is given twice"},
      {"schedule x speed=9",
       "line 1: unknown field \"speed=9\"; known are stages, chunks, placement, micro-batches, "
       "look-ahead, buckets, tied, tied-buckets, row-tables, clip-norm, versions, found, ahead, "
       "updates-at-end, "
       "early-sums, one-urgency, "
       "evaluation"},
      {"schedule x stages", "line 1: field \"stages\" needs a number after a \"=\""},
      {"schedule x stages=two", "line 1: field \"stages=two\" needs a number after the \"=\""},
      {"schedule x placement=w", "line 1: field \"placement=w\" needs v after the \"=\""},
      {"schedule x stages=-1", "line 1: field \"stages=-1\" needs a number after the \"=\""},
      {"schedule x micro-batches=1,",
       "line 1: field \"micro-batches=1,\" needs numbers parted by commas after the \"=\""},
      {"schedule x tied=0+1,a",
       "line 1: field \"tied=0+1,a\" needs groups of stages such as 0+3,1+2 after the \"=\""},
      {"schedule x clip-norm=1", "line 1: field \"clip-norm=1\" takes no value"},
      {header + "rank 1: F0", "line 2: expected \"rank 0:\", found \"rank 1:\""},
      {header + "F0 B0 U", "line 2: expected \"rank 0:\", found \"F0 B0\""},
      {header + "rank", "line 2: expected \"rank 0:\", found \"rank\""},
      {header + "rank 0: F0\n" + header,
       "line 3: another schedule begins, and a file holds one step; a run of steps that differ is "
       "had by its name, such as 2bw"},
      {header + "\nrank 0: F0 B0\nrank 1: F0 Q9",
       "line 4: unknown action \"Q9\"; known are F, Fc, R, B, I, W, U, SA, RA, SG, RG, AR, TR, "
       "SC, SX"}};
  for (const auto& [text, message] : rows) EXPECT_EQ(message_of(parse_schedule(text)), message);
}

}  // namespace
}  // namespace trireme
