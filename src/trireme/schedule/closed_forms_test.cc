// Makespans and in-flight counts of the schedules against the closed forms of the literature.
//
// S stages, m micro-batches, V chunks; F, B = I + W, R: what a pass of one chunk costs.
// Communication is free. A span is the time from a rank's first pass to the end of its last.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "trireme/schedule/builders.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

constexpr PassCosts kEven = {};  // F = I = W = R = 1, B = 2
constexpr PassCosts kUneven = {.forward = 10,
                               .backward = 20,
                               .input_gradient = 12,
                               .weight_gradient = 8,
                               .recompute = 9,
                               .delay = 0};

Schedule built(std::string_view name, int32_t stages, int32_t m, int32_t chunks = 1,
               const PassCosts& costs = kEven, int32_t max_in_flight = 0) {
  const Result<Schedule> schedule = build_schedule(name, {.num_stages = stages,
                                                          .num_micro_batches = {m},
                                                          .num_chunks = chunks,
                                                          .costs = costs,
                                                          .max_in_flight = max_in_flight});
  EXPECT_TRUE(schedule.ok()) << schedule.error().message;
  return schedule.value();
}

int64_t time_of(std::string_view name, int32_t stages, int32_t m, const PassCosts& costs,
                int32_t chunks = 1) {
  return makespan(timetable(built(name, stages, m, chunks, costs), costs));
}

int64_t span_of(std::string_view name, int32_t stages, int32_t m, const PassCosts& costs,
                int32_t chunks = 1) {
  return longest_span(timetable(built(name, stages, m, chunks, costs), costs));
}

std::string shape(int32_t stages, int32_t m) {
  return std::to_string(stages) + " stages, " + std::to_string(m) + " micro-batches";
}

// Huang et al., NeurIPS 2019, section 2.3, and Narayanan et al., SC 2021, section 2.2: both take
// (m + S - 1)(F + B). GPipe keeps m micro-batches, 1F1B at most S - s on stage s.
TEST(ClosedForms, GpipeAndOneFOneB) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (int32_t m = 1; m <= 16; ++m) {
      for (const PassCosts& costs : {kEven, kUneven}) {
        const int64_t time = (m + stages - 1) * (costs.forward + costs.backward);
        EXPECT_EQ(time_of("gpipe", stages, m, costs), time) << shape(stages, m);
        EXPECT_EQ(time_of("1f1b", stages, m, costs), time) << shape(stages, m);
      }
      std::vector<int32_t> kept;
      for (int32_t stage = 0; stage < stages; ++stage) kept.push_back(std::min(m, stages - stage));
      EXPECT_EQ(peak_in_flight(built("1f1b", stages, m)), kept) << shape(stages, m);
      EXPECT_EQ(peak_in_flight(built("gpipe", stages, m)), std::vector<int32_t>(stages, m));
    }
  }
}

// Narayanan et al., SC 2021, section 2.2: where S divides m, the bubble is (S-1)(F+B) of passes of
// one chunk, a V-th of that of 1F1B. In flight on rank s: the 2 (S-1-s) + (V-1) S + 1 passes that
// its warm-up and one more make, as far as there are so many.
TEST(ClosedForms, Interleaved) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (int32_t chunks = 2; chunks <= 4; ++chunks) {
      for (const int32_t m : {stages, 2 * stages, 3 * stages}) {
        for (const PassCosts& costs : {kEven, kUneven}) {
          EXPECT_EQ(time_of("interleaved", stages, m, costs, chunks),
                    (m * chunks + stages - 1) * (costs.forward + costs.backward))
              << shape(stages, m) << ", " << chunks << " chunks";
        }
        std::vector<int32_t> kept;
        for (int32_t stage = 0; stage < stages; ++stage) {
          kept.push_back(
              std::min(m * chunks, 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1));
        }
        EXPECT_EQ(peak_in_flight(built("interleaved", stages, m, chunks)), kept);
      }
    }
    EXPECT_EQ(to_text(built("interleaved", stages, 5)).substr(20),
              to_text(built("1f1b", stages, 5)).substr(13));
  }
}

// Qi et al., ICLR 2024, section 2.3, table 2: bubbles (S-1)(F+I-W) of ZB-H1 and (S-1)(F+I-2W) of
// ZB-H2; stage s keeps (S-s) activations and s weight gradients to come of ZB-H1, 2(S-s)-1 and 2s
// of ZB-H2. The bubble is what is left of the longest span. ZB-H1 needs m >= S, ZB-H2 m >= 2S-1.
TEST(ClosedForms, ZeroBubbleH1AndH2) {
  constexpr int32_t kActivation = 1000;
  constexpr InFlightWeights kWeights = {.kept = kActivation, .kept_input = 0, .deferred = 1};
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (const int32_t more : {0, 1, 5}) {
      for (const PassCosts& costs : {kEven, kUneven}) {
        const int64_t passes = costs.forward + costs.input_gradient + costs.weight_gradient;
        const int64_t bubble = costs.forward + costs.input_gradient - costs.weight_gradient;
        const int32_t m = stages + more;
        EXPECT_EQ(span_of("zb-h1", stages, m, costs), m * passes + (stages - 1) * bubble)
            << shape(stages, m);
        EXPECT_EQ(time_of("zb-h1", stages, m, costs), m * passes + (stages - 1) * bubble);
        const int32_t m2 = 2 * stages - 1 + more;
        EXPECT_EQ(span_of("zb-h2", stages, m2, costs),
                  m2 * passes + (stages - 1) * (bubble - costs.weight_gradient))
            << shape(stages, m2);
      }
      const int32_t m = 2 * stages - 1 + more;
      EXPECT_EQ(peak_in_flight(built("zb-h1", stages, m)), std::vector<int32_t>(stages, stages));
      EXPECT_EQ(peak_in_flight(built("zb-h2", stages, m)),
                std::vector<int32_t>(stages, 2 * stages - 1));
      std::vector<int32_t> h1;
      std::vector<int32_t> h2;
      for (int32_t stage = 0; stage < stages; ++stage) {
        h1.push_back((stages - stage) * kActivation + stage);
        h2.push_back((2 * (stages - stage) - 1) * kActivation + 2 * stage);
      }
      EXPECT_EQ(peak_in_flight(built("zb-h1", stages, m), kWeights), h1) << shape(stages, m);
      EXPECT_EQ(peak_in_flight(built("zb-h2", stages, m), kWeights), h2) << shape(stages, m);
    }
  }
}

// Qi et al., ICLR 2024, section 6: with F = I = W and m >= 2 S, ZB-V has no bubble, at the memory
// of 1F1B: S micro-batches in 2 S chunks.
TEST(ClosedForms, ZeroBubbleV) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (const int32_t m : {2 * stages, 2 * stages + 1, 4 * stages}) {
      EXPECT_EQ(span_of("zb-v", stages, m, kEven, 2), 6 * m) << shape(stages, m);
      EXPECT_EQ(time_of("zb-v", stages, m, kEven, 2), 6 * m + stages - 1) << shape(stages, m);
      EXPECT_LE(std::ranges::max(peak_in_flight(built("zb-v", stages, m, 2))), 2 * stages);
    }
  }
}

// Merak (its generators, run with F = R = 1 and B = 2): with recomputation everywhere 1F1B takes
// (m+S-1)(F+R+B); early recomputation in the drain saves (S-1)R, none on the last stage 2R more,
// the shifted critical path (S+2)R in all.
TEST(ClosedForms, MerakMakespans) {
  struct Row {
    int32_t stages;
    int32_t m;
    int64_t pre;
    int64_t last;
    int64_t shifted;
  };
  for (const Row& row : {Row{2, 8, 35, 33, 32}, Row{4, 8, 41, 39, 38}, Row{8, 16, 85, 83, 82},
                         Row{8, 32, 149, 147, 146}}) {
    EXPECT_EQ(time_of("pre-recompute", row.stages, row.m, kEven), row.pre);
    EXPECT_EQ(time_of("last-no-recompute", row.stages, row.m, kEven), row.last);
    EXPECT_EQ(time_of("shifted-critical-path", row.stages, row.m, kEven), row.shifted);
  }
  for (int32_t stages = 2; stages <= 8; ++stages) {
    for (int32_t m = std::max(stages, 4); m <= 20; ++m) {
      EXPECT_EQ(time_of("pre-recompute", stages, m, kEven), (m + stages - 1) * 4 - (stages - 1));
      EXPECT_EQ(time_of("last-no-recompute", stages, m, kEven),
                (m + stages - 1) * 4 - (stages + 1));
      EXPECT_EQ(time_of("shifted-critical-path", stages, m, kEven), (m + stages - 1) * 3 + (m - 3));
    }
  }
}

// The same source: micro-batches in flight from F or Fc to B are [S ... 3 2 1] of 1F1B, and of the
// shifted critical path [S ... 4 3 3 1].
TEST(ClosedForms, MerakInFlight) {
  constexpr InFlightWeights kAll = {.kept = 1, .kept_input = 1, .deferred = 1};
  for (int32_t stages = 2; stages <= 8; ++stages) {
    std::vector<int32_t> kept;
    for (int32_t stage = 0; stage < stages; ++stage) kept.push_back(stages - stage);
    for (const std::string_view name : {"pre-recompute", "last-no-recompute"}) {
      EXPECT_EQ(peak_in_flight(built(name, stages, 16), kAll), kept);
    }
    kept[static_cast<size_t>(stages) - 2] = 3;
    EXPECT_EQ(peak_in_flight(built("shifted-critical-path", stages, 16), kAll), kept);
  }
}

// Merak's order of computation for 4 stages and 6 micro-batches, where a plain F of its text that
// is recomputed inside of B is Fc and an R behind RG.
TEST(ClosedForms, MerakOrderOfTheShiftedCriticalPath) {
  const Schedule schedule = built("shifted-critical-path", 4, 6);
  EXPECT_EQ(to_text(schedule),
            "schedule shifted-critical-path stages=4 micro-batches=6 look-ahead=2\n"
            "rank 0: Fc0 SA0 Fc1 SA1 Fc2 SA2 Fc3 SA3 RG0 R0 B0 Fc4 SA4 RG1 R1 B1 Fc5 SA5 RG2 R2 B2 "
            "R3 RG3 B3 R4 RG4 B4 R5 RG5 B5 SC0 U\n"
            "rank 1: RA0 Fc0 SA0 RA1 Fc1 SA1 RA2 Fc2 SA2 R0 RG0 B0 SG0 RA3 Fc3 SA3 RG1 R1 B1 SG1 "
            "RA4 Fc4 SA4 RG2 R2 B2 SG2 RA5 Fc5 SA5 RG3 R3 B3 SG3 R4 RG4 B4 SG4 R5 RG5 B5 SG5 SC0 "
            "U\n"
            "rank 2: RA0 Fc0 SA0 RA1 Fc1 SA1 RA2 Fc2 SA2 R0 RG0 B0 SG0 R1 RG1 B1 SG1 RA3 Fc3 SA3 "
            "RG2 R2 B2 SG2 RA4 Fc4 SA4 RG3 R3 B3 SG3 RA5 Fc5 SA5 RG4 R4 B4 SG4 RG5 R5 B5 SG5 SC0 "
            "U\n"
            "rank 3: RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2 RA3 F3 B3 SG3 RA4 F4 B4 SG4 RA5 F5 "
            "B5 SG5 SC0 U\n");
}

// When a rank runs a forward and the backward right after it as one block, which waits for the
// inputs of both, has the outputs of both at its end, and costs `pair`. Returns each rank's idle
// time until the last rank ends.
std::vector<int64_t> idle_with_pairs(const Schedule& schedule, const PassCosts& costs,
                                     int64_t pair) {
  using enum ActionKind;
  const auto is_pass = [](const Action& a) { return is_compute(a.kind) && a.kind != kUpdate; };
  const size_t num_ranks = schedule.ranks.size();
  std::vector<std::vector<std::vector<Action>>> blocks(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      if (!is_pass(action)) continue;
      auto& mine = blocks[rank];
      const bool joins = action.kind == kBackward && !mine.empty() && mine.back().size() == 1 &&
                         mine.back()[0].kind == kForward;
      if (joins) {
        mine.back().push_back(action);
      } else {
        mine.push_back({action});
      }
    }
  }
  // By whether it is a gradient, micro-batch and virtual stage.
  std::map<std::tuple<bool, int32_t, int32_t>, int64_t> ends;
  std::vector<size_t> places(num_ranks, 0);
  std::vector<int64_t> times(num_ranks, 0);
  std::vector<int64_t> busy(num_ranks, 0);
  const int32_t num_virtual = schedule.num_stages * schedule.num_chunks;
  const auto ready_at = [&](size_t rank, const std::vector<Action>& block) {
    int64_t ready = times[rank];
    for (const Action& action : block) {
      if (action.kind == kWeightGradient) continue;
      const bool is_gradient = action.kind != kForward;
      const int32_t from = virtual_stage_of(schedule, static_cast<int32_t>(rank), action.chunk) +
                           (is_gradient ? 1 : -1);
      if (from < 0 || from == num_virtual) continue;
      const auto found = ends.find({is_gradient, action.index, from});
      if (found == ends.end()) return int64_t{-1};
      ready = std::max(ready, found->second);
    }
    return ready;
  };
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      while (places[rank] < blocks[rank].size()) {
        const std::vector<Action>& block = blocks[rank][places[rank]];
        const int64_t ready = ready_at(rank, block);
        if (ready < 0) break;
        const int64_t cost = block.size() == 2 ? pair : cost_of(block[0].kind, costs);
        times[rank] = ready + cost;
        busy[rank] += cost;
        for (const Action& action : block) {
          if (action.kind == kWeightGradient) continue;
          ends[{action.kind != kForward, action.index,
                virtual_stage_of(schedule, static_cast<int32_t>(rank), action.chunk)}] =
              times[rank];
        }
        ++places[rank];
        has_moved = true;
      }
    }
  }
  const int64_t end = std::ranges::max(times);
  std::vector<int64_t> idle;
  for (const int64_t work : busy) idle.push_back(end - work);
  return idle;
}

// DeepSeek-AI, DualPipe (its public description, 2025): the bubble of DualPipe-V on S ranks is
// (S-1)(F&B + B - 3W), where F&B is what a forward and a backward take together, and 2 S + 1 chunks
// are in flight. It is that of the rank that has the most.
TEST(ClosedForms, DualPipeV) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (const int32_t m : {2 * stages, 2 * stages + 1, 4 * stages}) {
      const Schedule schedule = built("dualpipe-v", stages, m, 2);
      for (const PassCosts& costs : {kEven, kUneven}) {
        for (const int64_t pair : {costs.forward + costs.backward, costs.backward + 5}) {
          if (pair > costs.forward + costs.backward) continue;
          const int64_t bubble = (stages - 1) * (pair + costs.backward - 3 * costs.weight_gradient);
          EXPECT_EQ(std::ranges::max(idle_with_pairs(schedule, costs, pair)), bubble)
              << shape(stages, m) << ", F&B " << pair;
        }
      }
      EXPECT_EQ(peak_in_flight(schedule), std::vector<int32_t>(stages, 2 * stages + 1));
      // Where the passes of a pair run one after the other, a forward leaves before its backward:
      // I less a rank is waited for.
      EXPECT_EQ(time_of("dualpipe-v", stages, m, kEven, 2), 6 * m + stages - 1);
    }
  }
}

// Greedy is at zero delay what ZB-H1 is, at the same memory, whatever the costs, and no slower with
// more memory than ZB-H2.
TEST(ClosedForms, GreedyAtZeroDelayIsZeroBubbleH1) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (int32_t m = 1; m <= 16; ++m) {
      EXPECT_EQ(time_of("greedy", stages, m, kEven), time_of("zb-h1", stages, m, kEven))
          << shape(stages, m);
      EXPECT_LE(time_of("greedy", stages, m, kUneven), time_of("zb-h1", stages, m, kUneven));
      EXPECT_LE(std::ranges::max(peak_in_flight(built("greedy", stages, m))), stages);
      const Schedule roomy = built("greedy", stages, m, 1, kUneven, 2 * stages - 1);
      EXPECT_LE(makespan(timetable(roomy, kUneven)), time_of("zb-h2", stages, m, kUneven));
    }
  }
}

// With a delay d each way, one more micro-batch a stage ahead hides it (as in 1F1B without a
// flush): the first and the last micro-batch alone pay for it.
TEST(ClosedForms, GreedyHidesDelaysWhereMemoryAllows) {
  for (int32_t stages = 2; stages <= 8; ++stages) {
    PassCosts costs = kEven;
    costs.delay = 1;
    const int32_t m = 4 * stages;
    const Schedule schedule = built("greedy", stages, m, 1, costs, m);
    // The last rank cannot begin before (S-1)(F+d), and has 3 m passes to run.
    EXPECT_EQ(makespan(timetable(schedule, costs)), 3 * m + (stages - 1) * 2) << shape(stages, m);
    EXPECT_GT(makespan(timetable(built("zb-h1", stages, m), costs)), 3 * m + (stages - 1) * 2);
  }
}

// A bound that every schedule keeps: the last virtual stage waits for the first micro-batch, and
// then every rank has its passes to run.
TEST(ClosedForms, NoScheduleIsFasterThanItsWork) {
  for (const ScheduleBuilder& row : schedule_builders()) {
    if (!row.is_training || row.name == "text") continue;
    for (int32_t stages = 1; stages <= 6; ++stages) {
      for (const int32_t m : {1, 3, 7, 13}) {
        const int32_t chunks = row.num_chunks == kAnyChunks ? 3 : row.num_chunks;
        EXPECT_GE(time_of(row.name, stages, m, kEven, chunks), 3 * m * chunks + stages - 1)
            << row.name << ": " << shape(stages, m);
      }
    }
  }
}

}  // namespace
}  // namespace trireme
