// Whole runs of random combinations of schedule, communication policy, layout, sizes of messages
// and transport, with ranks that are held up now and then: what the verifier accepts ends, and each
// message and each sum holds what it should.
//
// TRIREME_SEED repeats a run that failed, TRIREME_COMBINATIONS says how many a test tries.
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/exec/random_steps.h"
#include "trireme/exec/run_schedule.h"
#include "trireme/transport/direct_ranks.h"

namespace trireme {
namespace {

uint32_t variable(const char* name, uint32_t otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
}

using MakeTransports = std::function<std::vector<std::unique_ptr<Transport>>(int32_t num_ranks)>;

void run_combinations(const std::function<MakeTransports(RandomSteps&)>& pick_transports) {
  const uint32_t seed = variable("TRIREME_SEED", std::random_device()());
  SCOPED_TRACE("TRIREME_SEED=" + std::to_string(seed));
  RandomSteps random(seed);
  const uint32_t wanted = variable("TRIREME_COMBINATIONS", 200);
  uint32_t num_refused = 0;
  for (uint32_t done = 0; done < wanted;) {
    const std::vector<Schedule> steps = random.steps();
    if (steps.empty()) {
      ASSERT_LT(++num_refused, 10 * wanted + 100) << "most numbers are refused";
      continue;
    }
    RunOptions options = random.options(steps[0]);
    options.make_transports = pick_transports(random);
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
  run_combinations([](RandomSteps&) { return nullptr; });
}
TEST(RandomRuns, EndByTcp) {
  run_combinations([](RandomSteps&) -> MakeTransports {
    return [](int32_t num_ranks) { return as_transports(make_direct_ranks(num_ranks, by_tcp)); };
  });
}
// Those of one host share memory.
TEST(RandomRuns, EndOnTwoHostsWhoseRanksShareMemory) {
  run_combinations([](RandomSteps& random) -> MakeTransports {
    const int32_t border = random.below(RandomSteps::kMostRanks);
    return [border](int32_t num_ranks) {
      return as_transports(make_direct_ranks(num_ranks, [border](DirectOptions& options) {
        options.shares_memory = options.rank < border;
      }));
    };
  });
}

}  // namespace
}  // namespace trireme
