// Whole runs of random combinations of schedule, communication policy, layout, sizes of messages
// and transport, with ranks that are held up now and then: what the verifier accepts ends, and each
// message and each sum holds what it should.
//
// TRIREME_SEED repeats a run that failed, TRIREME_COMBINATIONS says how many a test tries.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/exec/forwarding_transport.h"
#include "trireme/exec/run_schedule.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"
#include "trireme/schedule/verify.h"
#include "trireme/transport/direct_ranks.h"

namespace trireme {
namespace {

constexpr int32_t kMostRanks = 8;

uint32_t variable(const char* name, uint32_t otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
}

class Combinations {
 public:
  explicit Combinations(uint32_t seed) : random_(seed) {}

  // Two to four steps after each other; empty where no such schedule exists.
  std::vector<Schedule> steps() {
    const ScheduleBuilder& builder = pick_builder();
    ScheduleOptions options{.num_stages = below(4) + 1, .clips_norm = below(2) == 0};
    const int32_t num_replicas = below(std::min(3, kMostRanks / options.num_stages)) + 1;
    for (int32_t replica = 0; replica < num_replicas; ++replica) {
      options.num_micro_batches.push_back(below(7));
    }
    options.num_chunks = builder.num_chunks == kAnyChunks ? below(3) + 1 : builder.num_chunks;
    options.communication = pick(communication_policies()).rules;
    if (options.num_stages > 1 && below(2) == 0) {
      options.tied_groups = {{0, options.num_stages - 1}};
    }
    for (int32_t stage = 0; num_replicas > 1 && stage < options.num_stages; ++stage) {
      options.num_buckets.push_back(below(4));
      options.num_row_tables.push_back(below(3));
      if (options.tied_groups.empty()) continue;
      options.num_tied_buckets.push_back(below(options.num_buckets.back() + 1));
    }
    if (builder.num_weight_versions == 2 && options.num_stages > 1) {
      options.extra_warm_ups.assign(static_cast<size_t>(options.num_stages) - 1, 0);
      options.extra_warm_ups[static_cast<size_t>(below(options.num_stages - 1))] = below(3);
    }
    Result<std::vector<Schedule>> built = build_run(builder.name, options, below(3) + 2);
    if (!built.ok()) return {};
    return with_look_ahead(std::move(built).value());
  }

  RunOptions options(int32_t num_buckets) {
    RunOptions options{.size_seed = below(1 << 30)};
    options.announced.resize(static_cast<size_t>(num_buckets));
    for (int32_t bucket = 0; bucket < num_buckets; ++bucket) options.announced[bucket] = bucket;
    std::ranges::shuffle(options.announced, random_);
    const uint64_t seed = random_();
    options.decorate = [seed](int32_t rank, Transport& inner) {
      return std::make_unique<DelayingTransport>(inner, seed + static_cast<uint64_t>(rank));
    };
    return options;
  }

  // Ranks of two hosts: those of one share memory.
  std::function<void(DirectOptions&)> hosts() {
    const int32_t border = below(kMostRanks);
    return [border](DirectOptions& options) { options.shares_memory = options.rank < border; };
  }

 private:
  int32_t below(int32_t end) {
    return static_cast<int32_t>(random_() % static_cast<uint64_t>(end));
  }
  template <typename Row>
  const Row& pick(std::span<const Row> rows) {
    return rows[random_() % rows.size()];
  }
  const ScheduleBuilder& pick_builder() {
    while (true) {
      const ScheduleBuilder& builder = pick(schedule_builders());
      if (builder.is_training && builder.name != "text") return builder;
    }
  }
  // Any that the verifier accepts.
  std::vector<Schedule> with_look_ahead(std::vector<Schedule> steps) {
    const std::vector<Schedule> built = steps;
    const int32_t look_ahead = below(5);
    for (Schedule& step : steps) step.look_ahead = look_ahead;
    return verify_run(steps).ok() ? steps : built;
  }

  std::mt19937_64 random_;
};

using MakeTransports = std::function<std::vector<std::unique_ptr<Transport>>(int32_t num_ranks)>;

void run_combinations(const std::function<MakeTransports(Combinations&)>& pick_transports) {
  const uint32_t seed = variable("TRIREME_SEED", std::random_device()());
  SCOPED_TRACE("TRIREME_SEED=" + std::to_string(seed));
  Combinations combinations(seed);
  const uint32_t wanted = variable("TRIREME_COMBINATIONS", 200);
  uint32_t num_refused = 0;
  for (uint32_t done = 0; done < wanted;) {
    const std::vector<Schedule> steps = combinations.steps();
    if (steps.empty()) {
      ASSERT_LT(++num_refused, 10 * wanted + 100) << "most numbers are refused";
      continue;
    }
    const std::vector<int32_t>& buckets = steps[0].num_buckets;
    RunOptions options =
        combinations.options(buckets.empty() ? 0 : std::ranges::max(steps[0].num_buckets));
    options.make_transports = pick_transports(combinations);
    const RunOutcome outcome = run_steps(steps, options);
    for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
      ASSERT_TRUE(outcome.ranks[rank].ok()) << "combination " << done << ", rank " << rank << ": "
                                            << outcome.ranks[rank].error().message << "\n"
                                            << to_text(steps[0]);
    }
    ++done;
  }
}

TEST(RandomRuns, EndOverTheLoopback) {
  run_combinations([](Combinations&) { return nullptr; });
}
TEST(RandomRuns, EndByTcp) {
  run_combinations([](Combinations&) -> MakeTransports {
    return [](int32_t num_ranks) { return as_transports(make_direct_ranks(num_ranks, by_tcp)); };
  });
}
TEST(RandomRuns, EndOnTwoHostsWhoseRanksShareMemory) {
  run_combinations([](Combinations& combinations) -> MakeTransports {
    return [change = combinations.hosts()](int32_t num_ranks) {
      return as_transports(make_direct_ranks(num_ranks, change));
    };
  });
}

}  // namespace
}  // namespace trireme
