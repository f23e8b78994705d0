#include "trireme/sim/simulate.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"
#include "trireme/schedule/unroll.h"
#include "trireme/sim/simulated_steps.h"

namespace trireme {
namespace {

// (m + S - 1) (F + B), Huang et al. 2019 and Narayanan et al. 2021: where transfers are free.
TEST(Simulate, StepsOfGpipeAndOneFOneBAreTheirClosedForms) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (const int32_t stages : {1, 2, 4}) {
      for (const int32_t m : {1, 4, 9}) {
        const Simulation simulation =
            run(schedule_of(name, stages, {m}), costs_of(stages, 0), star(stages, {1e9, 0}));
        EXPECT_EQ(simulation.step, (m + stages - 1) * 3 * kSecond) << name << stages << m;
        EXPECT_EQ(simulation.compute[0], m * 3 * kSecond);
      }
    }
  }
}

// One micro-batch goes down and comes back: each hop costs its two latencies and its bytes. The
// ring that then sums the losses of three ranks has 2 (3-1) hops of no bytes.
TEST(Simulate, AHopCostsItsLatenciesAndItsBytes) {
  const Simulation simulation = run(schedule_of("gpipe", 3, {1}), costs_of(3, 500),
                                    star(3, {.bandwidth = 1000, .latency = 0.25}));
  EXPECT_EQ(simulation.step, 9 * kSecond + 4 * (kSecond / 2 + kSecond / 2) + 4 * kSecond / 2);
}

// With a latency c of its one hop, stage 1 waits 2 c every second time: strict turns of F and B
// leave stage 0 one micro-batch ahead, which covers F + B, and not the way there and back.
TEST(Simulate, OneFOneBShowsTheLatencyOfASlowHopInEachMicroBatch) {
  const auto step = [](int32_t m) {
    return run(schedule_of("1f1b", 2, {m}), costs_of(2, 0), star(2, {1e9, 0.15})).step;
  };
  EXPECT_EQ(step(10) - step(8), 2 * (3 * kSecond + 300'000'000));
}

// 3 s of passes at half of a processor, by periods of 0.5 s: 0.25 s in each of twelve, the last of
// them at once.
TEST(Simulate, ADeviceWithAShareComputesInPartsOfPeriods) {
  Cluster cluster = star(2, {.bandwidth = 1e9});
  cluster.device_kinds[0].core_share = 0.5;
  cluster.device_kinds[0].share_period = 0.5;
  StepCosts costs = costs_of(2, 0);
  const Simulation one = run(schedule_of("1f1b", 1, {1}), costs_of(1, 0), cluster);
  EXPECT_EQ(one.step, 5 * kSecond + 750'000'000);
  EXPECT_EQ(one.compute[0], one.step);
  // F of stage 0 ends at 1.75; stage 1 finds its share of that period whole, and the time for it
  // until 2, then 2.75 s more, until 7.25; B of stage 0 has the rest of that period, and seven
  // more.
  const Simulation two = run(schedule_of("1f1b", 2, {1}), costs, cluster);
  EXPECT_EQ(two.step, 10 * kSecond + 750'000'000);
}

// A ring of two carries as many bytes each way as it sums: a count of each replica, 100 bytes of
// ids, which travel while the backward runs, and the rows.
TEST(Simulate, RowsAreSummedInThreeExchanges) {
  const Result<Schedule> schedule =
      build_schedule("1f1b", {.num_stages = 1, .num_micro_batches = {1, 1}, .num_row_tables = {1}});
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  StepCosts costs = costs_of(1, 0);
  costs.stages[0].rows = {.id_bytes = 100, .table_bytes = {500}};
  const Simulation simulation = run(schedule.value(), costs, star(2, {.bandwidth = 1000}));
  EXPECT_EQ(simulation.step, 3 * kSecond + (2 * 8 + 500) * (kSecond / 1000));
}

TEST(Simulate, RefusesCostsOfOtherRowTables) {
  const Result<Schedule> schedule =
      build_schedule("1f1b", {.num_stages = 1, .num_micro_batches = {1, 1}, .num_row_tables = {1}});
  StepCosts costs = costs_of(1, 0);
  costs.stages[0].bucket_bytes.clear();
  const Result<Simulation> refused = simulate(schedule.value(), costs, star(2, {.bandwidth = 1}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "stage 0 has costs of 0 row tables, but the schedule has 1");
}

TEST(Simulate, TransfersOfOneConnectionTakeTurnsAndOthersShare) {
  // All activations leave stage 0 before stage 1 can be done: gpipe of very short passes.
  StepCosts costs = costs_of(2, 1000);
  for (StageCosts& stage : costs.stages) {
    stage.chunks[0].forward = stage.chunks[0].backward = 0;
    stage.chunks[0].gradient_bytes = 0;
  }
  const Simulation simulation =
      run(schedule_of("gpipe", 2, {4}), costs, star(2, {.bandwidth = 1000}));
  EXPECT_EQ(simulation.step, 4 * kSecond);
  std::vector<SimTime> ends;
  for (const TimelineEvent& event : simulation.timeline.events) {
    if (event.action.kind == ActionKind::kReceiveActivation &&
        event.event_class == EventClass::kTransfer) {
      ends.push_back(event.end);
    }
  }
  EXPECT_EQ(ends, (std::vector<SimTime>{kSecond, 2 * kSecond, 3 * kSecond, 4 * kSecond}));
}

// Latency occupies no link: of four messages that follow each other each byte waits, no latency.
TEST(Simulate, LatenciesOfAConnectionOverlap) {
  StepCosts costs = costs_of(2, 1000);
  for (StageCosts& stage : costs.stages) {
    stage.chunks[0].forward = stage.chunks[0].backward = 0;
    stage.chunks[0].gradient_bytes = 0;
  }
  Schedule schedule = schedule_of("gpipe", 2, {4});
  schedule.look_ahead = 8;
  const Simulation simulation = run(schedule, costs, star(2, {.bandwidth = 1000, .latency = 0.25}));
  // There, back, and the sum of the losses: 2 (n-1) messages.
  EXPECT_EQ(simulation.step, (kSecond / 2 + 4 * kSecond) + kSecond / 2 + 2 * kSecond / 2);
}

// Stage 1 sends 2000 bytes of gradients and then sums as many of weights, on one link of 1000 bytes
// a second: both take 4 s, or the gradients 2 s.
TEST(Simulate, TransfersMayGoBeforeCollectives) {
  const Result<Schedule> schedule = parse_schedule(
      "schedule text stages=2 micro-batches=1,1 buckets=1,1\n"
      "rank 0: F0 SA0 RG0 B0 AR0 SC0 U\nrank 1: RA0 F0 B0 SG0 AR0 SC0 U\n"
      "rank 2: F0 SA0 RG0 B0 AR0 SC0 U\nrank 3: RA0 F0 B0 SG0 AR0 SC0 U\n");
  ASSERT_TRUE(schedule.ok());
  StepCosts costs = costs_of(2, 2000);
  for (StageCosts& stage : costs.stages) stage.bucket_bytes = {2000};
  const auto backward_begin = [&](LinkSharing sharing) {
    SimTime begin = 0;
    for (const TimelineEvent& event :
         run(schedule.value(), costs, star(4, {.bandwidth = 1000}), {.sharing = sharing})
             .timeline.events) {
      if (event.event_class == EventClass::kBackward) begin = std::max(begin, event.begin);
    }
    return begin;
  };
  EXPECT_EQ(backward_begin(LinkSharing::kMaxMinFair), (1 + 2 + 1 + 2 + 4) * kSecond);
  EXPECT_EQ(backward_begin(LinkSharing::kTransfersFirst), (1 + 2 + 1 + 2 + 2) * kSecond);
}

// Rank 1 sends its first gradient, to a neighbour of its own, while its second activation still
// travels to rank 2: 10 s each, after 1 s that a forward takes and 10 s to get here.
TEST(Simulate, AMessageTravelsOnWhileAnotherNeighbourGetsItsFirst) {
  StepCosts costs = costs_of(3, 10'000);
  for (StageCosts& stage : costs.stages) stage.chunks[0].gradient_bytes = 0;
  const Simulation simulation =
      run(schedule_of("1f1b", 3, {2}), costs, star(3, {.bandwidth = 1000}));
  // The last activation comes to rank 2 after its 2 transfers each way; then F B and two backwards.
  EXPECT_EQ(simulation.step, (1 + 10 + 1 + 10 + 10 + 3 + 2 + 2) * kSecond);
}

// The sum of the losses is asked for before the backward, which takes 2 s, and needed after it.
TEST(Simulate, PassesRunWhileACollectiveTravels) {
  const Result<Schedule> schedule = parse_schedule(
      "schedule text stages=1 micro-batches=1,1 buckets=1\n"
      "rank 0: F0 SC0 B0 AR0 U\nrank 1: F0 SC0 B0 AR0 U\n");
  ASSERT_TRUE(schedule.ok());
  StepCosts costs = costs_of(1, 0);
  costs.stages[0].bucket_bytes = {0};
  for (const auto& [bytes, step] : {std::pair(1500, 1 + 2), std::pair(5000, 1 + 5)}) {
    costs.scalar_bytes = bytes;
    const Simulation simulation = run(schedule.value(), costs, star(2, {.bandwidth = 1000}));
    EXPECT_EQ(simulation.step, step * kSecond);
    SimTime waited = 0;
    for (const TimelineEvent& event : simulation.timeline.events) {
      if (event.event_class == EventClass::kWait && event.rank == 0) {
        waited += event.end - event.begin;
      }
    }
    EXPECT_EQ(waited, (step - 3) * kSecond);
  }
}

// F = 1 s, B = 2 s. With classic warm-ups one hop of latency c costs c a micro-batch, and where all
// S-1 hops are slow 2 (S-1) c / S; with one more at each slow hop nothing, for c up to (F+B)/2.
TEST(Simulate, AnExtraWarmUpAtASlowHopHidesItsLatency) {
  const auto seconds_a_micro_batch = [](int32_t num_stages, double c, std::vector<int32_t> extra) {
    constexpr int32_t kMicroBatches = 24;  // so that the losses have the time to travel
    const ScheduleOptions options{.num_stages = num_stages,
                                  .num_micro_batches = {kMicroBatches},
                                  .extra_warm_ups = std::move(extra)};
    // A link from a host to the switch, and one from there.
    const Cluster cluster = star(num_stages, {.bandwidth = 1e12, .latency = c / 2});
    const auto end = [&](int32_t num_steps) {
      const std::vector<Schedule> steps = build_run("2bw", options, num_steps).value();
      SimOptions eager;
      eager.transfers = TransferMode::kEager;
      return to_seconds(run(unroll(steps), costs_of(num_stages, 0), cluster, eager).step);
    };
    return (end(12) - end(8)) / (4 * kMicroBatches);
  };
  for (const int32_t num_stages : {4, 6}) {
    const std::vector<int32_t> none(static_cast<size_t>(num_stages) - 1, 0);
    const std::vector<int32_t> all(static_cast<size_t>(num_stages) - 1, 1);
    for (const double c : {0.25, 0.75, 1.5}) {
      EXPECT_NEAR(seconds_a_micro_batch(num_stages, c, none),
                  3 + 2 * (num_stages - 1) * c / num_stages, 0.03)
          << num_stages << " " << c;
      EXPECT_NEAR(seconds_a_micro_batch(num_stages, c, all), 3, 1e-9) << num_stages << " " << c;
    }
    EXPECT_GT(seconds_a_micro_batch(num_stages, 1.6, all), 3.01);
  }
}

// A run of 2BW on a network that costs nothing: from the second step on each takes m (F + B) on
// every rank, whatever the number of stages.
TEST(Simulate, StepsOfTwoBwFollowEachOtherWithoutABubble) {
  constexpr int32_t kSteps = 5;
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (const int32_t m : {stages, 2 * stages + 1}) {
      for (const bool clips : {false, true}) {
        const Result<std::vector<Schedule>> steps =
            build_run("2bw",
                      {.num_stages = stages,
                       .num_micro_batches = {m, m},
                       .num_buckets = std::vector<int32_t>(stages, 1),
                       .clips_norm = clips && m > stages},
                      kSteps);
        ASSERT_TRUE(steps.ok()) << steps.error().message;
        const Simulation simulation =
            run(unroll(steps.value()), costs_of(stages, 0), star(2 * stages, {1e9, 0}));
        // Of stage s: S-1-s warm-up passes and F before the first B, and the drain after the last.
        std::vector<std::vector<SimTime>> begins(2 * stages, std::vector<SimTime>(kSteps, 0));
        for (const TimelineEvent& event : simulation.timeline.events) {
          if (event.event_class == EventClass::kBackward && event.action.index == 0) {
            begins[event.rank][event.step] = event.begin;
          }
        }
        for (const std::vector<SimTime>& of_rank : begins) {
          for (int32_t step = 2; step < kSteps; ++step) {
            EXPECT_EQ(of_rank[step] - of_rank[step - 1], m * 3 * kSecond)
                << stages << " stages, " << m << " micro-batches, step " << step;
          }
        }
      }
    }
  }
}

// The slack of a stage is about (m - (S-1-s)) (F + B): sums of gradients that take less are hidden
// behind the passes of the next step.
TEST(Simulate, TheSumsOfTwoBwAreHiddenBehindTheNextStep) {
  constexpr int32_t kSteps = 5;
  const Result<std::vector<Schedule>> steps = build_run(
      "2bw", {.num_stages = 2, .num_micro_batches = {8, 8}, .num_buckets = {1, 1}}, kSteps);
  ASSERT_TRUE(steps.ok());
  const auto period = [&](int64_t bytes) {
    StepCosts costs = costs_of(2, 0);
    for (StageCosts& stage : costs.stages) stage.bucket_bytes = {bytes};
    SimTime before = 0;
    SimTime after = 0;
    SimTime hidden = 0;
    const Simulation simulation = run(unroll(steps.value()), costs, star(4, {.bandwidth = 1000}));
    for (const TimelineEvent& event : simulation.timeline.events) {
      if (event.rank != 0) continue;
      if (event.event_class == EventClass::kBackward && event.action.index == 0) {
        if (event.step == 2) before = event.begin;
        if (event.step == 3) after = event.begin;
      }
      // Begun when the step ends, over before the next one does.
      if (event.event_class == EventClass::kCollective && event.step == 2 &&
          event.action.kind == ActionKind::kAllReduce) {
        hidden = event.end - event.begin;
      }
    }
    EXPECT_EQ(hidden, bytes * kSecond / 1000);
    return after - before;
  };
  EXPECT_EQ(period(0), 8 * 3 * kSecond);
  EXPECT_EQ(period(20'000), 8 * 3 * kSecond);
  // 7 pairs of passes until U- on stage 0: what takes longer is waited for.
  EXPECT_EQ(period(22'000), (8 * 3 + 1) * kSecond);
}

// A millisecond a byte of both processors, before the transfer and after it.
TEST(Simulate, AProcessorThatCopiesComputesNothing) {
  const SimTime step = run(schedule_of("gpipe", 2, {1}), costs_of(2, 500),
                           star(2, {.bandwidth = 1000, .cpu_per_byte = 1e-3}))
                           .step;
  EXPECT_EQ(step, 6 * kSecond + 2 * (kSecond / 2 + 2 * kSecond / 2));
}

TEST(Simulate, AFreeNetworkLeavesThePassesAlone) {
  const Simulation simulation =
      run(schedule_of("1f1b", 3, {5, 5}, {1, 1, 1}), costs_of(3, 3000),
          star(6, {.bandwidth = 1e3, .latency = 1}), {.has_free_network = true});
  EXPECT_EQ(simulation.step, (5 + 2) * 3 * kSecond);
}

TEST(Simulate, AllReducesHaveTheCostsOfTheirAlgorithms) {
  // n ranks, V bytes, alpha seconds a hop (two links), beta seconds a byte. Thakur et al. 2005.
  constexpr double kBytes = 4000;
  constexpr double kBeta = 1e-3;
  constexpr double kAlpha = 0.5;
  StepCosts costs = costs_of(1, 0);
  costs.stages[0].chunks[0].forward = costs.stages[0].chunks[0].backward = 0;
  costs.stages[0].bucket_bytes = {static_cast<int64_t>(kBytes)};
  for (const int32_t n : {2, 3, 4, 6, 8}) {
    const auto step = [&](CollectiveAlgorithm algorithm) {
      const Cluster cluster = star(n, {.bandwidth = 1 / kBeta, .latency = kAlpha / 2});
      const Schedule schedule = schedule_of("gpipe", 1, std::vector<int32_t>(n, 1), {1});
      SimOptions options{.collectives = algorithm};
      // The exchange of losses has latencies only, and travels at the same time.
      return to_seconds(run(schedule, costs, cluster, options).step);
    };
    const double moved = 2.0 * (n - 1) / n * kBytes * kBeta;
    EXPECT_NEAR(step(CollectiveAlgorithm::kRing), 2 * (n - 1) * kAlpha + moved, 1e-6) << n;
    const double rounds = std::ceil(std::log2(n));
    EXPECT_NEAR(step(CollectiveAlgorithm::kTree), 2 * rounds * (kAlpha + kBytes * kBeta), 1e-6)
        << n;
    const double whole = std::exp2(std::floor(std::log2(n)));
    const double folding = whole == n ? 0 : 2 * (kAlpha + kBytes * kBeta);
    EXPECT_NEAR(step(CollectiveAlgorithm::kHalvingDoubling),
                2 * std::log2(whole) * kAlpha + 2 * (whole - 1) / whole * kBytes * kBeta + folding,
                1e-6)
        << n;
  }
}

// h hosts of k devices: a reduce-scatter and an all-gather over k, with (k-1) alpha + (k-1)/k V
// beta each, and between them k rings of h over V/k at once, which share the host's link.
TEST(Simulate, AHierarchicalAllReduceCrossesTheNetworkOnceAHost) {
  Cluster cluster = star(2, {.bandwidth = 1000, .latency = 0.5});
  cluster.host_kinds[0].devices = 4;
  cluster.host_kinds[0].link = {.bandwidth = 8000, .latency = 0};
  StepCosts costs = costs_of(1, 0);
  costs.stages[0].chunks[0].forward = costs.stages[0].chunks[0].backward = 0;
  costs.stages[0].bucket_bytes = {8000};
  const SimOptions options{.collectives = CollectiveAlgorithm::kHierarchical};
  const std::vector<int32_t> micro_batches(8, 1);
  const SimTime step =
      run(schedule_of("gpipe", 1, micro_batches, {1}), costs, cluster, options).step;
  const double inside = 2 * (3.0 / 4 * 8000 / 8000);
  const double between = 2 * 1 * (2 * 0.5) + 4 * (2.0 * 1 / 2 * 8000 / 4) / 1000;
  EXPECT_NEAR(to_seconds(step), inside + between, 1e-6);
}

TEST(Simulate, MemoryIsWhatTheScheduleKeepsInFlight) {
  const Simulation simulation = run(schedule_of("1f1b", 4, {8}), costs_of(4, 0), star(4, {1e9, 0}));
  EXPECT_EQ(simulation.timeline.peak_bytes, (std::vector<int64_t>{4050, 3050, 2050, 1050}));
  const Simulation gpipe = run(schedule_of("gpipe", 4, {8}), costs_of(4, 0), star(4, {1e9, 0}));
  EXPECT_EQ(gpipe.timeline.peak_bytes, (std::vector<int64_t>(4, 8050)));
}

TEST(Simulate, MemoryIsGivenBackInEachMicroBatch) {
  const auto peaks = [](int32_t micro_batches) {
    return run(schedule_of("1f1b", 3, {micro_batches}), costs_of(3, 10), star(3, {1e9, 0}))
        .timeline.peak_bytes;
  };
  // A rank holds what it sends until it has sent kMaxSendsInFlight more.
  EXPECT_EQ(peaks(24), peaks(48));
  EXPECT_LT(peaks(5), peaks(24));
}

// Of one micro-batch at a time on stage 1: what is received (posted ahead), kept, sent and put off.
TEST(Simulate, MemoryFollowsRecomputationAndSplitBackwards) {
  const Result<Schedule> schedule = parse_schedule(
      "schedule text stages=2 micro-batches=1\n"
      "rank 0: Fc0 SA0 R0 RG0 I0 W0 SC0 U\n"
      "rank 1: RA0 Fc0 R0 I0 SG0 W0 SC0 U\n");
  ASSERT_TRUE(schedule.ok());
  StepCosts costs = costs_of(2, 0);
  for (StageCosts& stage : costs.stages) {
    stage.static_bytes = 0;
    stage.chunks[0] = {.forward = kSecond,
                       .input_gradient = kSecond,
                       .weight_gradient = kSecond,
                       .recompute = kSecond,
                       .activation_bytes = 10,
                       .gradient_bytes = 20,
                       .kept_bytes = 1000,
                       .kept_input_bytes = 100,
                       .deferred_bytes = 300,
                       .transient_bytes = 5};
  }
  const Cluster cluster = star(2, {1e12, 0});
  // Rank 0: R0 has 1000 + 5 with the gradient to come (20); the activations (10) are held until the
  // end of the step. I0 has 300 more. Rank 1 sends 20 while it has 1000 + 300.
  EXPECT_EQ(run(schedule.value(), costs, cluster).timeline.peak_bytes,
            (std::vector<int64_t>{1000 + 20 + 10 + 300 + 5, 1000 + 300 + 20 + 5}));
}

TEST(Simulate, TheSameArgumentsGiveTheSameTimelineAndASeedAnother) {
  const Schedule schedule = schedule_of("1f1b", 3, {5, 4}, {1, 1, 1});
  const StepCosts costs = costs_of(3, 777);
  const Cluster cluster = star(6, {.bandwidth = 1e4, .latency = 1e-3});
  const SimOptions jitter{.jitter = 0.1, .seed = 4};
  EXPECT_EQ(run(schedule, costs, cluster, jitter).timeline,
            run(schedule, costs, cluster, jitter).timeline);
  EXPECT_NE(run(schedule, costs, cluster, jitter).step,
            run(schedule, costs, cluster, {.jitter = 0.1, .seed = 5}).step);
}

// The logarithm of what a pass takes, over what it would, has the deviation that was asked for.
TEST(Simulate, TheJitterHasItsDeviation) {
  const Simulation simulation = run(schedule_of("gpipe", 1, {2000}), costs_of(1, 0),
                                    star(1, {1e9, 0}), {.jitter = 0.2, .seed = 1});
  double sum = 0;
  double squares = 0;
  for (const TimelineEvent& event : simulation.timeline.events) {
    if (event.event_class != EventClass::kForward) continue;
    const double part = std::log(to_seconds(event.end - event.begin));
    sum += part;
    squares += part * part;
  }
  // Of 2000 draws: the standard error is 0.2 / sqrt(2000) of the mean, 0.2 / sqrt(4000) of the
  // rest.
  EXPECT_NEAR(sum / 2000, 0, 4 * 0.0045);
  EXPECT_NEAR(std::sqrt(squares / 2000), 0.2, 4 * 0.0032);
}

// A compute lane has no holes that are not said: passes and waits add up.
TEST(Simulate, PassesAndWaitsFillTheLaneOfARank) {
  const Simulation simulation =
      run(schedule_of("1f1b", 3, {5, 4}, {1, 1, 1}), costs_of(3, 3000),
          star(6, {.bandwidth = 1e4, .latency = 1e-3, .cpu_per_byte = 1e-4}));
  std::vector<SimTime> at(6, 0);
  for (const TimelineEvent& event : simulation.timeline.events) {
    if (!is_on_compute_lane(event.event_class)) continue;
    EXPECT_EQ(event.begin, at[event.rank]);
    at[event.rank] = event.end;
  }
  EXPECT_EQ(*std::ranges::max_element(at), simulation.step);
}

TEST(Simulate, AnEagerTransferDoesNotWaitForItsReceive) {
  // A slow receiver that asks for nothing ahead.
  Schedule schedule = schedule_of("gpipe", 2, {3});
  schedule.look_ahead = 0;
  StepCosts costs = costs_of(2, 1000);
  const Cluster cluster = star(2, {.bandwidth = 1000});
  const SimTime rendezvous = run(schedule, costs, cluster).step;
  const SimTime eager = run(schedule, costs, cluster, {.transfers = TransferMode::kEager}).step;
  EXPECT_LT(eager, rendezvous);
}

TEST(Simulate, WhatDoesNotFitIsRefused) {
  const Schedule schedule = schedule_of("gpipe", 2, {2});
  const auto refusal = [&](const StepCosts& costs, const Cluster& cluster) {
    const Result<Simulation> simulation = simulate(schedule, costs, cluster);
    return simulation.ok() ? std::string("accepted") : simulation.error().message;
  };
  EXPECT_EQ(refusal(costs_of(3, 0), star(2, {1e9, 0})),
            "there are costs of 3 stages, but the schedule has 2");
  EXPECT_EQ(refusal(costs_of(2, 0), star(1, {1e9, 0})),
            "the schedule has 2 ranks, but the cluster 1 devices");
  StepCosts few = costs_of(2, 0);
  few.stages[1].chunks.clear();
  EXPECT_EQ(refusal(few, star(2, {1e9, 0})),
            "stage 1 has costs of 0 chunks, but the schedule has 1");
  StepCosts tied = costs_of(2, 0);
  tied.tied_bytes = {8};
  EXPECT_EQ(refusal(tied, star(2, {1e9, 0})),
            "there are costs of 1 tied groups, but the schedule has 0");
  StepCosts buckets = costs_of(2, 0);
  buckets.stages[1].bucket_bytes = {8, 8};
  EXPECT_EQ(
      simulate(schedule_of("gpipe", 2, {1, 1}, {1, 1}), buckets, star(4, {1e9, 0})).error().message,
      "stage 1 has costs of 2 buckets, but the schedule has 1");
  EXPECT_EQ(simulate(schedule, costs_of(2, 0), star(2, {1e9, 0}), {.jitter = 2}).error().message,
            "the jitter is 2, not 0 to 1");
}

TEST(Simulate, AStepWithoutEndIsRefused) {
  const char* message = "the step takes more than 146 years, which is the end of simulated time";
  const StepCosts large = costs_of(2, kMaxStepCost);
  const auto refusal = [](const StepCosts& costs, int32_t micro_batches, const Cluster& cluster) {
    const Result<Simulation> simulation =
        simulate(schedule_of("gpipe", 2, {micro_batches}), costs, cluster);
    return simulation.ok() ? std::string("accepted") : simulation.error().message;
  };
  EXPECT_EQ(refusal(large, 1, star(2, {.bandwidth = 1})), message);
  Cluster slow = star(2, {.bandwidth = 1e9});
  slow.network.speed.cpu_per_byte = 1;
  EXPECT_EQ(refusal(large, 1, slow), message);
}

}  // namespace
}  // namespace trireme
