#include "trireme/comm/iteration.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

const PolicyRow& row(const char* name) { return *find_policy(name).value(); }

constexpr auto kMessages = static_cast<size_t>(TransferKind::kActivation);
constexpr auto kSums = static_cast<size_t>(TransferKind::kAllReduce);

// Two stages of one micro-batch. Links: out of stage 0, into stage 1, out of stage 1, into stage 0.
//
//   stage 0:  F0 100 |                                        | B0 100
//   stage 1:          F1 200 B1 300
//
// Messages have `bytes`, the same number of nanoseconds, and a latency of 50.
Workload two_stages(int64_t bytes) {
  const AlphaBeta link{.latency_s = 50e-9, .bytes_per_s = 1e9};
  Workload workload{.tasks = {{100, 100}, {200, 300}},
                    .routes = {{.link = link, .path = {0, 1}}, {.link = link, .path = {2, 3}}},
                    .num_links = 4};
  workload.transfers = {{.kind = TransferKind::kActivation,
                         .bytes = bytes,
                         .route = 0,
                         .producer = {0, 0},
                         .consumer = {1, 0}},
                        {.kind = TransferKind::kGradient,
                         .bytes = bytes,
                         .route = 1,
                         .producer = {1, 1},
                         .consumer = {0, 1}}};
  return workload;
}

TEST(Steps, AMessageCostsItsLatencyAndItsBytes) {
  const StepsResult result = run_steps(two_stages(400), row("fifo")).value();
  EXPECT_EQ(result.compute, 100 + 200 + 300 + 100);
  EXPECT_EQ(result.step, 100 + 450 + 500 + 450 + 100);
  EXPECT_EQ(result.exposed[kMessages], 450);
}

TEST(Steps, MessagesOfOneRouteTakeTheirLinkInTurnWhileTheNextOneStartsUp) {
  Workload workload = two_stages(400);
  // Another activation, needed by the backward of stage 1, leaves with the first.
  workload.transfers.push_back(workload.transfers[0]);
  workload.transfers.back().consumer = {1, 1};
  // Both start up by 150; the first has arrived at 550, the second at 950; F1 ends at 750.
  const StepsResult result = run_steps(workload, row("fifo")).value();
  EXPECT_EQ(result.step, 950 + 300 + 450 + 100);
  EXPECT_EQ(result.exposed[kMessages], 450 + 200);
}

TEST(Steps, ALinkHasTwoDirections) {
  // Behind its activation stage 0 sends 900 more, until 1450, while stage 1 answers from 1100.
  Workload workload = two_stages(400);
  Transfer more = workload.transfers[0];
  more.bytes = 900;
  more.distance = 1;
  workload.transfers.push_back(more);
  EXPECT_EQ(run_steps(workload, row("fifo")).value().step, 1600);
  // In one direction the answer would have half of the link for 700 of its 400 bytes.
  workload.routes[1].path = {0, 1};
  EXPECT_EQ(run_steps(workload, row("fifo")).value().step, 1950);
}

// Stage 0 has a gradient, too, which is ready before its forward; it travels by link 0 as well.
Workload with_a_gradient(int64_t gradient_bytes, int64_t message_bytes) {
  Workload workload = two_stages(message_bytes);
  workload.tasks[0] = {20, 100, 100};
  workload.transfers[0].producer = {0, 1};
  workload.transfers[1].consumer = {0, 2};
  workload.routes.push_back(
      {.link = {.latency_s = 0, .bytes_per_s = 1e9}, .members = 2, .path = {0, 3}});
  workload.transfers.push_back(
      {.bytes = gradient_bytes, .route = 2, .producer = {0, 0}, .consumer = {0, 0}, .distance = 1});
  return workload;
}

TEST(Steps, FlowsOnALinkShareIt) {
  // The gradient leaves at 20, the message at 120 with its bytes from 170: of 1000 there are 850
  // left, and both have half of the link until the message of 400 is through, at 970.
  const StepsResult result = run_steps(with_a_gradient(1000, 400), row("fifo")).value();
  EXPECT_EQ(result.exposed[kMessages], 50 + 800);
  EXPECT_EQ(result.step, 970 + 500 + 450 + 100);
  EXPECT_EQ(result.exposed[kSums], 0);
}

TEST(Steps, MessagesThatGoFirstLeaveGradientsNothingOfTheirSendersLink) {
  const Workload workload = with_a_gradient(1000, 400);
  StepsOptions options{.policy = {.chunk_bytes = 1000}};
  EXPECT_EQ(run_steps(workload, row("trirace+sparse"), options).value().step, 2020);
  // The message takes 50 + 400.
  const StepsResult first = run_steps(workload, row("trirace+p2p"), options).value();
  // The gradient goes on at 570 and has 300 left when the message back, from 1120 on, comes in by
  // the same link, which is not its sender's: half of it each, until 1720.
  ASSERT_EQ(first.order.size(), 1U);
  EXPECT_EQ(first.order[0].end, 1720 - 20);
  EXPECT_EQ(first.step, 1820 + 100);
}

// Stage 1 sums over the link by which its activation comes in, and cannot know of it at its own.
Workload with_a_gradient_at_the_receiver(int64_t gradient_bytes, int64_t message_bytes) {
  Workload workload = two_stages(message_bytes);
  workload.tasks[1] = {20, 200, 300};
  workload.transfers[0].consumer = {1, 1};
  workload.transfers[1].producer = {1, 2};
  workload.routes.push_back(
      {.link = {.latency_s = 0, .bytes_per_s = 1e9}, .members = 2, .path = {2, 1}});
  workload.transfers.push_back(
      {.bytes = gradient_bytes, .route = 2, .producer = {1, 0}, .consumer = {1, 0}, .distance = 1});
  return workload;
}

TEST(Steps, AnArbiterHoldsGradientsWhereAMessageComesInFromAnotherHost) {
  const Workload workload = with_a_gradient_at_the_receiver(800, 400);
  StepsOptions options{.policy = {.chunk_bytes = 100}};
  // At half the rate the message would take until 950.
  EXPECT_EQ(run_steps(workload, row("trirace+p2p"), options).value().step, 950 + 500 + 450 + 100);
  // It is posted at 100; of the gradient, two chunks are on their way, and the third is held.
  const StepsResult held = run_steps(workload, row("trirace"), options).value();
  EXPECT_LT(held.step, 650 + 500 + 450 + 100);
  EXPECT_GE(held.step, 550 + 500 + 450 + 100);
}

TEST(Steps, AnArbiterHoldsNoGradientForLongerThanTheBound) {
  const Workload workload = with_a_gradient_at_the_receiver(400, 5000);
  StepsOptions options{.policy = {.chunk_bytes = 50}, .most_hold = 300};
  const StepsResult result = run_steps(workload, row("trirace"), options).value();
  ASSERT_EQ(result.order.size(), 8U);
  // Each starts 300 after it was next and one of two had arrived, at the latest.
  for (size_t i = 2; i < result.order.size(); ++i) {
    const SimTime could = std::max(result.order[i - 2].end, result.order[i - 1].start);
    EXPECT_LE(result.order[i].start - could, 300);
  }
  // Without a bound they wait for the message, from 100 to 5150.
  options.most_hold = 1'000'000;
  EXPECT_GE(run_steps(workload, row("trirace"), options).value().order.back().start, 4900);
}

TEST(Steps, ARouteOfOneMemberCostsNothing) {
  Workload workload = with_a_gradient(1000, 400);
  workload.routes[2].members = 1;
  EXPECT_EQ(run_steps(workload, row("end")).value().step, 20 + 100 + 450 + 500 + 450 + 100);
}

TEST(Steps, EachUnitOccupiesItsLinksForItsOverhead) {
  Workload workload = two_stages(400);
  workload.routes[0].overhead_s = 30e-9;
  EXPECT_EQ(run_steps(workload, row("fifo")).value().step, 1600 + 30);
}

TEST(Steps, GradientsMayArriveTwoStepsLater) {
  // One of 1500 a step of 1000, needed two steps later: it fills the link and more.
  const Route route{.link = {.latency_s = 0, .bytes_per_s = 1e9}, .members = 2, .path = {0}};
  Workload workload{.tasks = {{400, 600}}, .routes = {route}, .num_links = 1};
  workload.transfers = {{.bytes = 900, .producer = {0, 1}, .consumer = {0, 0}, .distance = 2}};
  EXPECT_EQ(run_steps(workload, row("wfbp")).value().step, 1000);
  workload.transfers[0].bytes = 1500;
  EXPECT_EQ(run_steps(workload, row("wfbp")).value().step, 1500);
  // At the end is at the end.
  EXPECT_EQ(run_steps(workload, row("end")).value().step, 2500);
}

std::string refusal(const Workload& workload) {
  const Status verified = verify_workload(workload);
  EXPECT_EQ(run_steps(workload, row("end")).ok(), verified.ok());
  EXPECT_EQ(stage_problem(workload, 0, TableExchange::kWholeTable).ok(), verified.ok());
  return verified.ok() ? "" : verified.error().message;
}

TEST(Workload, IsRefusedInOneSentence) {
  const auto with = [](const auto& change) {
    Workload workload = with_a_gradient(1000, 400);
    change(workload);
    return refusal(workload);
  };
  EXPECT_EQ(with([](Workload&) {}), "");
  EXPECT_EQ(refusal({}), "a workload has no device");
  EXPECT_EQ(with([](Workload& w) { w.tasks[1].clear(); }), "device 1 has no task");
  EXPECT_EQ(with([](Workload& w) { w.tasks[1][0] = -4; }), "device 1 has a task of -4 ns");
  EXPECT_EQ(with([](Workload& w) { w.routes[1].members = 0; }),
            "route 1 has 0 members, 1000000000 bytes a second and a latency of 5e-08 s");
  EXPECT_EQ(with([](Workload& w) { w.routes[1].num_servers = 3; }),
            "route 1 has 3 servers, not 0 to 2, as many as members");
  EXPECT_EQ(with([](Workload& w) { w.routes[0].path = {0, 4}; }), "route 0 has link 4 of 4");
  EXPECT_EQ(with([](Workload& w) { w.routes[0].overhead_s = -1; }),
            "route 0 has an overhead of -1 s");
  EXPECT_EQ(with([](Workload& w) { w.transfers[0].producer.task = 3; }),
            "transfer 0: its producer is task 3 of device 0, which does not exist");
  EXPECT_EQ(with([](Workload& w) { w.transfers[0].consumer.device = 2; }),
            "transfer 0: its consumer is task 0 of device 2, which does not exist");
  EXPECT_EQ(with([](Workload& w) { w.transfers[0].route = 3; }), "transfer 0 has route 3 of 3");
  EXPECT_EQ(with([](Workload& w) { w.transfers[0].bytes = 0; }),
            "transfer 0 has 0 bytes, not at least 1");
  EXPECT_EQ(with([](Workload& w) { w.transfers[2].distance = 0; }),
            "transfer 2 is needed 0 steps later, not 1 to 3");
  EXPECT_EQ(with([](Workload& w) { w.transfers[0].distance = 4; }),
            "transfer 0 is needed 4 steps later, not 0 to 3");
  EXPECT_EQ(with([](Workload& w) { w.transfers[2].consumer = {1, 0}; }),
            "transfer 2 is a gradient of device 0 that device 1 needs");
  EXPECT_EQ(with([](Workload& w) {
              w.transfers.push_back(w.transfers[2]);
              w.transfers.back().route = 1;
            }),
            "gradients of device 0 have two routes");
  EXPECT_EQ(with([](Workload& w) {
              w.transfers[0].consumer = {1, 1};
              w.transfers[1].producer = {1, 0};
              w.transfers[1].consumer = {0, 0};
              w.transfers[0].producer = {0, 1};
              w.transfers[0].consumer = {1, 0};
            }),
            "a task waits for a transfer that is made only after it");
}

}  // namespace
}  // namespace trireme
