#include "trireme/comm/choice.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "trireme/comm/known_models.h"

namespace trireme {
namespace {

Workload model_on_a_slow_link(size_t model) {
  const Route route{.link = {.latency_s = 20e-6, .bytes_per_s = 2e9},
                    .members = 4,
                    .path = {0, 1},
                    .overhead_s = 20e-6};
  return chain_workload(layer_costs(known_models()[model].layers(), 100'000'000), route);
}

TEST(Choice, TriesEveryPolicyAndPutsTheShortestStepFirst) {
  for (size_t model = 0; model + 1 < known_models().size(); ++model) {
    const Workload workload = model_on_a_slow_link(model);
    const std::vector<TriedPolicy> tried = try_policies(workload).value();
    EXPECT_TRUE(std::ranges::is_sorted(tried, {}, &TriedPolicy::step));
    std::set<std::string_view> names;
    for (const TriedPolicy& one : tried) names.insert(one.row->name);
    EXPECT_EQ(names.size(), policy_rows().size());
    // What it says of a policy is what the policy takes.
    const TriedPolicy& best = tried.front();
    EXPECT_EQ(run_steps(workload, *best.row, {.policy = best.options}).value().step, best.step);
  }
}

TEST(Choice, LeavesOutSizesThatWouldMakeVeryManyUnits) {
  // Two tables of 1.6 GB.
  for (const TriedPolicy& tried : try_policies(model_on_a_slow_link(3)).value()) {
    if (tried.options.chunk_bytes > 0) {
      EXPECT_GE(tried.options.chunk_bytes, 8'000'000);
    }
    EXPECT_FALSE(tried.row->name == "p3" && tried.options == PolicyOptions());
  }
}

TEST(Choice, HasNothingToChooseForOneMember) {
  Workload workload = model_on_a_slow_link(0);
  workload.routes[0].members = 1;
  const std::vector<TriedPolicy> tried = try_policies(workload).value();
  EXPECT_EQ(tried.front().step, tried.back().step);
}

}  // namespace
}  // namespace trireme
