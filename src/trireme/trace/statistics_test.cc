#include "trireme/trace/statistics.h"

#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/trace/report_text.h"

namespace trireme {
namespace {

// Two stages, one micro-batch. Rank 0 computes F0 until 100 and sends it; rank 1 waits from 10 to
// 140, until 100 for rank 0, then for the bytes, and so on back.
constexpr std::string_view kText =
    "timeline measured 1f1b stages=2 event-cost=3\n"
    "rank 0 input F0 0 10000 step=4\n"
    "rank 0 F0 10000 100000 step=4\n"
    "rank 0 SA0 100000 400000 step=4 peer=1 bytes=64\n"
    "rank 0 RG0 20000 350000 step=4 peer=1 bytes=32\n"
    "rank 0 wait RG0 110000 350000 step=4 peer=1\n"
    "rank 0 B0 350000 380000 step=4\n"
    "rank 1 RA0 0 140000 step=4 peer=0 bytes=64\n"
    "rank 1 wait RA0 10000 140000 step=4 peer=0\n"
    "rank 1 F0 140000 200000 step=4\n"
    "rank 1 B0 200000 300000 step=4\n"
    "rank 1 SG0 300000 305000 step=4 peer=0 bytes=32\n"
    "rank 0 wait SC0 380000 400000 step=4\n"
    "rank 0 SC0 380000 400000 step=4 bytes=8\n"
    "rank 1 wait SC0 305000 400000 step=4\n"
    "rank 1 SC0 305000 400000 step=4 bytes=8\n"
    "rank 0 U 400000 450000 step=4\n"
    "rank 1 U 400000 500000 step=4\n";

Timeline example() { return parse_timeline(kText).value(); }

std::string path_text(const TimelineStatistics& statistics) {
  std::string text;
  for (const PathPiece& piece : statistics.critical_path) {
    text +=
        fmt::format("{} {} {} {}-{}\n", piece.rank, kSliceNames[static_cast<size_t>(piece.slice)],
                    to_text(piece.action), piece.begin, piece.end);
  }
  return text;
}

TEST(Statistics, PartTheTimeOfEachRank) {
  const TimelineStatistics statistics = statistics_of(example());
  EXPECT_EQ(statistics.wall, 500000);
  EXPECT_EQ(statistics.num_steps, 1);
  EXPECT_EQ(statistics.first_step, 4);
  // compute, recompute, optimizer, input, evaluation, peer, transfer, idle. Rank 0 waits for rank 1
  // until it sends at 300, 190 of 240, and for the bytes and SC0, whose last member it is, the
  // rest.
  EXPECT_THAT(statistics.ranks[0].slices,
              testing::ElementsAre(120000, 0, 50000, 10000, 0, 190000, 70000, 60000));
  // Rank 1 waits from 10 to 100 and from 305 to 380 for rank 0.
  EXPECT_THAT(statistics.ranks[1].slices,
              testing::ElementsAre(160000, 0, 100000, 0, 0, 165000, 60000, 15000));
  EXPECT_DOUBLE_EQ(statistics.bubble_rate, (190 + 70 + 60 + 165 + 60 + 15) / 1000.0);
  EXPECT_DOUBLE_EQ(statistics.recording_share, 9 * 3 / 500000.0);
}

TEST(Statistics, AnEvaluationIsNoPartOfAStep) {
  const std::string text = std::string(kText) +
                           "rank 0 evaluation F0 500000 700000 step=4\n"
                           "rank 1 evaluation F0 500000 800000 step=4\n";
  const TimelineStatistics statistics = statistics_of(parse_timeline(text).value());
  EXPECT_EQ(statistics.wall, 800000);
  EXPECT_EQ(statistics.num_steps, 1);
  EXPECT_THAT(statistics.ranks[0].slices,
              testing::ElementsAre(120000, 0, 50000, 10000, 200000, 190000, 70000, 160000));
  EXPECT_THAT(statistics.ranks[1].slices,
              testing::ElementsAre(160000, 0, 100000, 0, 300000, 165000, 60000, 15000));
  // The mean of 200 and 300 us are for the evaluation.
  EXPECT_EQ(statistics.step_time, 550000);
  EXPECT_DOUBLE_EQ(statistics.bubble_rate, (190 + 70 + 160 + 165 + 60 + 15) / 1100.0);
  EXPECT_TRUE(path_text(statistics).ends_with("1 evaluation F0 500000-800000\n"));
  const Comparison both = compare(statistics, statistics_of(example()));
  EXPECT_DOUBLE_EQ(both.measured_slices[static_cast<size_t>(Slice::kEvaluation)], 0);
}

TEST(Statistics, SplitTransfersIntoHiddenAndExposed) {
  const std::vector<LinkStatistics> links = statistics_of(example()).links;
  ASSERT_EQ(links.size(), 3);
  // SA0 is under way from 100 to 140, and waited for all the time.
  EXPECT_EQ(links[0].name, "0>1");
  EXPECT_EQ(links[0].bytes, 64);
  EXPECT_EQ(links[0].busy, 40000);
  EXPECT_EQ(links[0].exposed, 40000);
  EXPECT_EQ(links[0].hidden, 0);
  EXPECT_EQ(links[1].name, "1>0");
  EXPECT_EQ(links[1].exposed, 50000);
  EXPECT_EQ(links[2].name, "SC");
  EXPECT_EQ(links[2].busy, 20000);
}

TEST(Statistics, ATransferThatNobodyWaitsForIsHidden) {
  const Timeline timeline = parse_timeline(
                                "timeline simulated 1f1b stages=2\n"
                                "rank 0 SA0 0 60 peer=1 bytes=64\n"
                                "rank 1 F1 0 50\n"
                                "rank 1 wait RA0 50 60 peer=0\n")
                                .value();
  const LinkStatistics link = statistics_of(timeline).links.at(0);
  EXPECT_EQ(link.hidden, 50);
  EXPECT_EQ(link.exposed, 10);
}

TEST(Statistics, TheCriticalPathLeadsBackThroughTheTransfers) {
  EXPECT_EQ(path_text(statistics_of(example())),
            "0 input F0 0-10000\n"
            "0 compute F0 10000-100000\n"
            "0 transfer RA0 100000-140000\n"
            "1 compute F0 140000-200000\n"
            "1 compute B0 200000-300000\n"
            "1 transfer RG0 300000-350000\n"
            "0 compute B0 350000-380000\n"
            "0 transfer SC0 380000-400000\n"
            "1 optimizer U 400000-500000\n");
}

TEST(Statistics, AddUpToTheWallTimeOfAnyTimeline) {
  std::mt19937 random(7);
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  constexpr std::array<ActionKind, 9> kKinds = {
      ActionKind::kForward,         ActionKind::kBackward,     ActionKind::kRecompute,
      ActionKind::kUpdate,          ActionKind::kSendGradient, ActionKind::kReceiveActivation,
      ActionKind::kReceiveGradient, ActionKind::kAllReduce,    ActionKind::kScalars};
  for (int turn = 0; turn < 300; ++turn) {
    Timeline timeline{.builder = "x", .num_stages = 2, .num_replicas = 2};
    const int num_events = 1 + draw(40);
    for (int i = 0; i < num_events; ++i) {
      const ActionKind kind = kKinds[static_cast<size_t>(draw(kKinds.size()))];
      const bool waits = !is_compute(kind) && draw(2) == 0;
      const SimTime begin = draw(1000) * 100;
      const int32_t rank = draw(4);
      timeline.events.push_back({.rank = rank,
                                 .event_class = waits ? EventClass::kWait : event_class_of(kind),
                                 .action = {kind, kind == ActionKind::kUpdate ? 0 : draw(2)},
                                 .begin = begin,
                                 .end = draw(20) == 0 ? kNotOver : begin + draw(1000) * 100,
                                 .step = draw(2),
                                 .peer = is_send(kind) || is_receive(kind) ? rank ^ 1 : -1});
    }
    ASSERT_TRUE(verify_timeline(timeline).ok());
    const TimelineStatistics statistics = statistics_of(timeline);
    for (const RankStatistics& rank : statistics.ranks) {
      EXPECT_EQ(std::accumulate(rank.slices.begin(), rank.slices.end(), SimTime{0}),
                statistics.wall);
      for (const SimTime slice : rank.slices) EXPECT_GE(slice, 0);
    }
    SimTime reached = statistics.begin;
    for (const PathPiece& piece : statistics.critical_path) {
      EXPECT_EQ(piece.begin, reached) << to_text(timeline) << path_text(statistics);
      EXPECT_GT(piece.end, piece.begin);
      reached = piece.end;
    }
    for (const LinkStatistics& link : statistics.links) {
      EXPECT_LE(link.busy, statistics.wall);
      EXPECT_GE(link.hidden, 0);
      EXPECT_GE(link.exposed, 0);
    }
  }
}

TEST(Statistics, SayWhatEachRankWasDoing) {
  EXPECT_TRUE(last_doings(example()).empty());
  const Timeline timeline = parse_timeline(
                                "timeline measured 1f1b stages=4\n"
                                "rank 0 F0 0 1000000 step=4\n"
                                "rank 0 wait RG0 1000000 - step=4 peer=1\n"
                                "rank 0 RG0 0 - step=4 peer=1\n"
                                "rank 1 B0 3000000 - step=4\n"
                                "rank 2 U 0 3500000 step=3\n"
                                "rank 3 input F0 3000000 - step=4\n")
                                .value();
  EXPECT_THAT(last_doings(parse_timeline("timeline measured 1f1b stages=1\n"
                                         "rank 0 U 0 1000000 step=4\n"
                                         "rank 0 evaluation F0 1000000 - step=4\n")
                              .value()),
              testing::ElementsAre("rank 0 was in step 4: evaluating, for 0.000 ms"));
  EXPECT_THAT(last_doings(timeline),
              testing::ElementsAre("rank 0 was in step 4: waiting for RG0 of rank 1, for 2.500 ms",
                                   "rank 1 was in step 4: computing B0, for 0.500 ms",
                                   "rank 2 was in step 3: after U",
                                   "rank 3 was in step 4: fetching the data of F0, for 0.500 ms"));
}

TEST(Report, TableHasTheFiguresInWords) {
  EXPECT_EQ(
      report_table(example(), nullptr),
      "measured 1f1b, 2 stages x 1 replica: 1 step from step 4 in 500 us, 500 us a step, "
      "bubble rate 56.0%\n\n"
      "  rank    compute  recompute  optimizer      input evaluation       peer   transfer       "
      "idle\n"
      "     0      24.0%       0.0%      10.0%       2.0%       0.0%      38.0%      14.0%      "
      "12.0%\n"
      "     1      32.0%       0.0%      20.0%       0.0%       0.0%      33.0%      12.0%       "
      "3.0%\n"
      "  mean      28.0%       0.0%      15.0%       1.0%       0.0%      35.5%      13.0%       "
      "7.5%\n"
      "\n"
      "busiest link 1>0: 10.0% of the time, 1 transfers, 32 bytes, 50 us exposed, 0 ns hidden\n"
      "\n"
      "critical path of 9 pieces, the longest:\n"
      "     100 us  rank 1 B0, step 4\n"
      "     100 us  rank 1 U, step 4\n"
      "      90 us  rank 0 F0, step 4\n"
      "      60 us  rank 1 F0, step 4\n"
      "      50 us  RG0 from rank 1 to rank 0, step 4\n"
      "      40 us  RA0 from rank 0 to rank 1, step 4\n"
      "      30 us  rank 0 B0, step 4\n"
      "      20 us  SC0 once rank 0 has come, step 4\n"
      "      10 us  rank 0 input of F0, step 4\n"
      "\n"
      "recording took 0.005% of the time, 3 ns an event\n");
}

TEST(Report, ComparesAPredictionByStepAndSlice) {
  Timeline prediction = example();
  for (TimelineEvent& event : prediction.events) {
    event.begin *= 2;
    event.end *= 2;
  }
  const Comparison both = compare(statistics_of(example()), statistics_of(prediction));
  EXPECT_DOUBLE_EQ(both.step_error, 1.0);
  EXPECT_DOUBLE_EQ(both.measured_slices[0], 140000);
  EXPECT_DOUBLE_EQ(both.predicted_slices[0], 280000);
}

TEST(Report, TracesOfChromeArePairsAndIntervals) {
  const nlohmann::json trace = nlohmann::json::parse(chrome_trace(example()));
  std::map<std::string, int> phases;
  for (const auto& event : trace["traceEvents"]) ++phases[event["ph"].get<std::string>()];
  EXPECT_EQ(phases, (std::map<std::string, int>{{"M", 2}, {"X", 11}, {"b", 6}, {"e", 6}}));
}

TEST(Report, PageHasTheEventsOfLanesAndTheTransfersInSmallNumbers) {
  const std::string page = report_page(example(), nullptr, "x");
  const std::string_view tag = "<script id=\"data\" type=\"application/json\">";
  const size_t begin = page.find(tag) + tag.size();
  const auto data =
      nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  std::string text;
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto lane = data["lanes"][rank].get<std::vector<int64_t>>();
    SimTime time = 0;
    int64_t step = 0;
    for (size_t i = 0; i < lane.size(); i += 4) {
      const auto& kind = data["kinds"][static_cast<size_t>(lane[i])];
      const SimTime start = time + lane[i + 1];
      time = start + lane[i + 2];
      step += lane[i + 3];
      text += fmt::format("{} {} {} {}-{} step {} of {}\n", rank, kind[0].get<int>(),
                          kind[1].get<std::string>(), start, time, step, kind[2].get<int>());
    }
  }
  EXPECT_EQ(text,
            "0 6 F0 0-10000 step 4 of -1\n"
            "0 0 F0 10000-100000 step 4 of -1\n"
            "0 8 RG0 110000-350000 step 4 of 1\n"
            "0 1 B0 350000-380000 step 4 of -1\n"
            "0 8 SC0 380000-400000 step 4 of -1\n"
            "0 5 U 400000-450000 step 4 of -1\n"
            "1 8 RA0 10000-140000 step 4 of 0\n"
            "1 0 F0 140000-200000 step 4 of -1\n"
            "1 1 B0 200000-300000 step 4 of -1\n"
            "1 8 SC0 305000-400000 step 4 of -1\n"
            "1 5 U 400000-500000 step 4 of -1\n");
  // SA0 from 100 to 140 us, SG0 from 300 to 350.
  EXPECT_EQ(data["flows"].get<std::vector<int64_t>>(),
            (std::vector<int64_t>{100000, 40000, 0, 1, 0, 200000, 50000, 1, 0, 1}));
}

TEST(Report, PageHoldsNoTagOfOthers) {
  const std::string page = report_page(example(), nullptr, "</script><b>x");
  EXPECT_EQ(page.find("<b>x"), std::string::npos);
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
}

}  // namespace
}  // namespace trireme
