// What each policy does with a step small enough to be worked out by hand.
//
// Three layers. Of a layer l, forward and backward take F[l] and B[l] ns, and its gradient g has as
// many bytes as it takes ns on the link; an all-reduce of two members has two start-ups of 5 ns.
//
//   compute:  F0 10 | F1 20 | F2 30 | B2 40 | B1 50 | B0 60   = 210
//
// Times count from when g2 is ready: g1 is at 50 and g0 at 110. When the last gradient has arrived
// and the forwards have run, B2 takes another 40 to the end of the step.

#include "trireme/comm/policies.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/iteration.h"

namespace trireme {
namespace {

const Route kRoute = {
    .link = {.latency_s = 5e-9, .bytes_per_s = 1e9}, .members = 2, .path = {0, 1}};

std::vector<LayerCosts> three_layers(int64_t bytes0, int64_t bytes1, int64_t bytes2) {
  return {{.forward = 10, .backward = 60, .gradient_bytes = bytes0},
          {.forward = 20, .backward = 50, .gradient_bytes = bytes1},
          {.forward = 30, .backward = 40, .gradient_bytes = bytes2}};
}

StepsResult run(const std::string& policy, const Workload& workload,
                const StepsOptions& options = {}) {
  return run_steps(workload, *find_policy(policy).value(), options).value();
}

// "g2+g1 100-260": what travelled together, from when to when.
std::string order_of(const StepsResult& result) {
  std::string text;
  for (const SentUnit& sent : result.order) {
    text += text.empty() ? "" : ", ";
    switch (sent.unit.operation) {
      case Operation::kReduceScatter:
        text += "scatter ";
        break;
      case Operation::kAllGather:
        text += "gather ";
        break;
      case Operation::kRows:
        text += "rows ";
        break;
      default:
        break;
    }
    for (size_t i = 0; i < sent.unit.parts.size(); ++i) {
      const UnitPart& part = sent.unit.parts[i];
      text += fmt::format("{}g{}[{}]", i == 0 ? "" : "+", part.gradient, part.bytes);
    }
    text += fmt::format(" {}-{}", sent.start, sent.end);
  }
  return text;
}

std::string run_text(const std::string& policy, const Workload& workload,
                     const StepsOptions& options = {}) {
  const StepsResult result = run(policy, workload, options);
  return fmt::format("{}; step {}", order_of(result), result.step);
}

TEST(Policies, EndSendsEverythingInOneBucketWhenTheBackwardIsOver) {
  EXPECT_EQ(run_text("end", chain_workload(three_layers(100, 200, 300), kRoute)),
            "g2[300]+g1[200]+g0[100] 110-720; step 820");
  EXPECT_EQ(run_text("end", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.bucket_bytes = 300}}),
            "g2[300] 110-420, g1[200]+g0[100] 420-730; step 830");
}

TEST(Policies, WfbpSendsEachGradientWhenItIsReadyAndTheForwardWaitsForAll) {
  EXPECT_EQ(run_text("wfbp", chain_workload(three_layers(100, 200, 300), kRoute)),
            "g2[300] 0-310, g1[200] 310-520, g0[100] 520-630; step 730");
}

TEST(Policies, LayersThatWaitForTheirOwnGradientsStartSoonerWhereTheirOrderIsThatOfTheForward) {
  const Workload chain = chain_workload(three_layers(100, 200, 300), kRoute);
  // What F0 needs comes last: nothing is won.
  EXPECT_EQ(run("wfbp", chain, {.forces_own_layer = true}).step, 730);
  // F0 runs at 420, F1 at 630.
  EXPECT_EQ(run_text("bytescheduler", chain, {.policy = {.chunk_bytes = 300, .credit_bytes = 1}}),
            "g2[300] 0-310, g0[100] 310-420, g1[200] 420-630; step 720");
}

TEST(Policies, FifoJoinsNeighboursUpToABucket) {
  EXPECT_EQ(run_text("fifo", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.bucket_bytes = 500}}),
            "g2[300]+g1[200] 50-560, g0[100] 560-670; step 770");
}

TEST(Policies, MgWfbpJoinsWhatHasNotStartedAndWhatIsWorthWaitingFor) {
  // g1 is ready 50 after g2, more than a start-up of 10, so g2 goes alone. g1 has not started when
  // g0 is ready: they are joined.
  EXPECT_EQ(run_text("mg-wfbp", chain_workload(three_layers(100, 200, 300), kRoute)),
            "g2[300] 0-310, g1[200]+g0[100] 310-620; step 720");
  // g1 comes 8 after g2: that is less than a start-up.
  std::vector<LayerCosts> layers = three_layers(100, 200, 300);
  layers[1].backward = 8;
  layers[0].backward = 400;
  EXPECT_EQ(run_text("mg-wfbp", chain_workload(layers, kRoute)),
            "g2[300]+g1[200] 8-518, g0[100] 518-628; step 728");
}

TEST(Policies, AscWfbpSendsTwoAtOnceAndWaitsForNone) {
  std::vector<LayerCosts> layers = three_layers(100, 200, 300);
  layers[1].backward = 8;
  layers[0].backward = 400;
  // g2 has 292 left when g1 has started up at 18; at half the rate g1 takes 400, and leaves 92.
  // They go alone while g0 starts up, then 82 at half the rate, until 592; g0 has 18 left then.
  EXPECT_EQ(run_text("asc-wfbp", chain_workload(layers, kRoute)),
            "g2[300] 0-592, g1[200] 8-418, g0[100] 418-610; step 710");
}

TEST(Policies, TheForwardOfAscWfbpWaitsForAllGradients) {
  // g0 is there at 340, but F0 waits for g1.
  std::vector<LayerCosts> layers = three_layers(100, 200, 300);
  layers.pop_back();
  layers[1].gradient_bytes = 1000;
  const Workload chain = chain_workload(layers, kRoute);
  EXPECT_EQ(run_text("asc-wfbp", chain), "g1[1000] 0-1110, g0[100] 60-270; step 1190");
  EXPECT_EQ(run("asc-wfbp", chain, {.forces_own_layer = true}).step, 1180);
}

TEST(Policies, P3CutsSlicesAndTakesTheFirstLayersFirst) {
  // The slice after the one that travels is on its way: g0 is behind two of g2.
  EXPECT_EQ(run_text("p3", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.chunk_bytes = 100}}),
            "g2[100] 0-110, g2[100] 0-210, g0[100] 110-310, g1[100] 210-410, "
            "g1[100] 310-510, g2[100] 410-610; step 680");
}

TEST(Policies, ByteSchedulerOverdrawsItsCreditOnce) {
  // Of 150 credit, g2's first two chunks of 100 start; the second one overdraws it, and starts up
  // while the first travels. g0 is behind them.
  EXPECT_EQ(run_text("bytescheduler", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.chunk_bytes = 100, .credit_bytes = 150}}),
            "g2[100] 0-110, g2[100] 0-210, g0[100] 110-310, g1[100] 210-410, "
            "g1[100] 310-510, g2[100] 410-610; step 680");
}

TEST(Policies, BytePsQueuePassesOverWhatDoesNotFitItsCredit) {
  // 150 credit: one chunk of 100 leaves 50, in which only the last piece of g1 fits.
  EXPECT_EQ(run_text("byteps-queue", chain_workload(three_layers(100, 140, 300), kRoute),
                     {.policy = {.chunk_bytes = 100, .credit_bytes = 150}}),
            "g2[100] 0-110, g1[40] 50-150, g0[100] 110-250, g1[100] 250-360, "
            "g2[100] 360-470, g2[100] 470-580; step 650");
}

TEST(Policies, ABlockOfUsByteEndsWhenTheNextGradientIsReady) {
  // Blocks of 20. There are 50 till g1 is ready: (50 - 10) / 20 = 2 blocks of g2; and 60 from there
  // till g0: all of g1. Then g0, and the rest of g2.
  EXPECT_EQ(run_text("us-byte", chain_workload(three_layers(100, 50, 60), kRoute),
                     {.policy = {.chunk_bytes = 20}}),
            "g2[40] 0-50, g1[50] 50-110, g0[100] 110-220, g2[20] 220-250; step 320");
}

TEST(Policies, UsByteLetsAGradientGoOnWhereThatSavesAStartUp) {
  // By layer g1 would follow 40 of g2 at 50, and g2 end at 650. With g2 first until g0 is ready,
  // g1 and g2 have one start-up less.
  EXPECT_EQ(run_text("us-byte", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.chunk_bytes = 10}}),
            "g2[100] 0-110, g0[100] 110-220, g1[200] 220-430, g2[200] 430-640; step 710");
}

TEST(Policies, ProphetSendsWhatFitsBeforeTheNextBurst) {
  // g4 and g3 are ready at 0 and 10; then comes a gap of 100, ten times the mean; the others are
  // ready by 130. In these 120 the link carries 109 bytes, 100 in 110 at best: two pieces of g3,
  // which is on top of g4.
  std::vector<LayerCosts> layers(5, {.forward = 10, .backward = 10, .gradient_bytes = 100});
  layers[2].backward = 100;
  EXPECT_EQ(run_text("prophet", chain_workload(layers, kRoute),
                     {.policy = {.chunk_bytes = 50, .credit_bytes = 50}}),
            "g3[50] 10-70, g3[50] 10-120, g0[50] 130-190, g0[50] 190-250, g1[50] 250-310, "
            "g1[50] 310-370, g2[50] 370-430, g2[50] 430-490, g4[50] 490-550, g4[50] 550-610; "
            "step 630");
}

TEST(Policies, DearScattersBehindTheBackwardAndGathersOneAhead) {
  // Halves of a start-up of 5. The first gather starts when the last scatter is over, each next
  // one when the forward uses the group before.
  EXPECT_EQ(run_text("dear", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.bucket_bytes = 100}}),
            "scatter g2[300] 0-155, scatter g1[200] 155-260, scatter g0[100] 260-315, "
            "gather g0[100] 315-370, gather g1[200] 370-475, gather g2[300] 475-630; step 700");
}

TEST(Policies, DearDoesNotSplitWhatOneTaskNeeds) {
  // Both gradients are needed by the same task, so a gather that waits for it would never start.
  Workload workload{.tasks = {{10, 40, 50}}, .routes = {kRoute}, .num_links = 2};
  for (const int32_t task : {1, 2}) {
    workload.transfers.push_back(
        {.bytes = 100, .producer = {.task = task}, .consumer = {.task = 0}, .distance = 1});
  }
  EXPECT_EQ(run_text("dear", workload, {.policy = {.bucket_bytes = 100}}),
            "scatter g0[100]+g1[100] 50-155, gather g0[100]+g1[100] 155-260; step 310");
}

TEST(Policies, TriRaceSendsChunksByDeadlineWithTheNextOneStartingUp) {
  EXPECT_EQ(run_text("trirace", chain_workload(three_layers(100, 200, 300), kRoute),
                     {.policy = {.chunk_bytes = 100}}),
            "g2[100] 0-110, g2[100] 0-210, g0[100] 110-310, g1[100] 210-410, "
            "g1[100] 310-510, g2[100] 410-610; step 680");
}

TEST(Policies, TriRaceJoinsSmallGradientsThatWait) {
  const std::vector<LayerCosts> layers = {{.forward = 10, .backward = 10, .gradient_bytes = 10},
                                          {.forward = 10, .backward = 10, .gradient_bytes = 20},
                                          {.forward = 10, .backward = 10, .gradient_bytes = 300},
                                          {.forward = 10, .backward = 10, .gradient_bytes = 300}};
  EXPECT_EQ(run_text("trirace", chain_workload(layers, kRoute), {.policy = {.chunk_bytes = 300}}),
            "g3[300] 0-310, g2[300] 10-610, g0[10]+g1[20] 310-640; step 690");
}

TEST(Policies, TriRaceExchangesTheRowsOfATable) {
  std::vector<LayerCosts> layers = three_layers(1000, 200, 300);
  layers[0].prior_row_bytes = 30;
  layers[0].delayed_row_bytes = 50;
  const Workload chain = chain_workload(layers, kRoute);
  // The table, as others do, travels until 1510.
  EXPECT_EQ(run("trirace+allreduce", chain, {.policy = {.chunk_bytes = 1000}}).step, 1610);
  // Rows of two members cost 5 + bytes; those that the next batch does not read travel last, and
  // nothing waits for them.
  EXPECT_EQ(run_text("trirace+sparse", chain, {.policy = {.chunk_bytes = 1000}}),
            "g2[300] 0-310, g1[200] 50-510, rows g0[30] 110-540, rows g3[50] 110-590; step 640");
}

TEST(Policies, RowsThatCostMoreThanTheirTableTravelAsTheTable) {
  std::vector<LayerCosts> layers = three_layers(1000, 200, 300);
  layers[0].prior_row_bytes = 1006;
  const Workload chain = chain_workload(layers, kRoute);
  EXPECT_EQ(chain, chain_workload(three_layers(1000, 200, 300), kRoute));
}

TEST(Policies, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(find_policy("lifo").error().message,
            "\"lifo\" is no communication policy; there are end, wfbp, fifo, mg-wfbp, asc-wfbp, "
            "p3, bytescheduler, byteps-queue, us-byte, prophet, dear, trirace+allreduce, "
            "trirace+sparse, trirace+p2p, trirace");
}

}  // namespace
}  // namespace trireme
