// What is true of every policy whatever the model is, and what their papers prove, over random
// steps; for few gradients against all there is to try.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/iteration.h"

namespace trireme {
namespace {

uint64_t seed() {
  const char* given = std::getenv("TRIREME_SEED");
  return given != nullptr ? std::stoull(given) : std::random_device{}();
}

struct RandomStep {
  std::vector<LayerCosts> layers;
  Route route;
};

struct Sizes {
  int64_t most_layers = 12;
  int64_t most_ns = 10'000;     // of a pass
  int64_t most_bytes = 20'000;  // of a gradient; a byte takes about a nanosecond
  int64_t most_startup_ns = 2'000;
};

// 2 to 8 members, whose all-reduce has 2 (n-1) latencies.
RandomStep random_step(std::mt19937_64& random, const Sizes& sizes) {
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const auto members = static_cast<int32_t>(draw(2, 8));
  RandomStep step;
  step.route = {.link = {.latency_s = 1e-9 * static_cast<double>(draw(0, sizes.most_startup_ns) /
                                                                 (2 * (members - 1))),
                         .bytes_per_s = 1e9},
                .members = members,
                .path = {0, 1}};
  const int64_t num_layers = draw(1, sizes.most_layers);
  for (int64_t l = 0; l < num_layers; ++l) {
    step.layers.push_back({.forward = draw(0, sizes.most_ns),
                           .backward = draw(0, 2 * sizes.most_ns),
                           .gradient_bytes = draw(1, sizes.most_bytes)});
  }
  return step;
}

// Sizes that make some of the random gradients small against them and others large.
StepsOptions small_sizes(const PolicyRow& row) {
  StepsOptions options;
  if (row.defaults.bucket_bytes > 0) options.policy.bucket_bytes = 30'000;
  if (row.defaults.chunk_bytes > 0) options.policy.chunk_bytes = 4'000;
  if (row.defaults.credit_bytes > 0) options.policy.credit_bytes = 9'000;
  if (row.name.starts_with("trirace")) options.policy.chunk_bytes = 4'000;
  return options;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Calls `check` for random steps.
template <typename Check>
void for_random_steps(int32_t num_steps, const Sizes& sizes, const Check& check) {
  const uint64_t first = seed();
  for (int32_t i = 0; i < num_steps; ++i) {
    const uint64_t value = first + static_cast<uint64_t>(i);
    SCOPED_TRACE("TRIREME_SEED=" + std::to_string(value));
    std::mt19937_64 random(value);
    check(random_step(random, sizes));
  }
}

template <typename Check>
void for_each_policy(const RandomStep& step, const Check& check) {
  const Workload workload = chain_workload(step.layers, step.route);
  for (const PolicyRow& row : policy_rows()) {
    SCOPED_TRACE(std::string(row.name));
    check(row, workload);
  }
}

TEST(Oracles, WithANetworkThatCostsNothingEveryPolicyTakesTheTimeOfItsComputing) {
  for_random_steps(50, {}, [](const RandomStep& step) {
    SimTime compute = 0;
    for (const LayerCosts& layer : step.layers) compute += layer.forward + layer.backward;
    for_each_policy(step, [&](const PolicyRow& row, const Workload& workload) {
      StepsOptions options = small_sizes(row);
      options.has_free_network = true;
      const StepsResult result = run_steps(workload, row, options).value();
      EXPECT_EQ(result.step, compute);
      EXPECT_EQ(result.compute, compute);
      EXPECT_EQ(result.exposed[0], 0);
    });
  });
}

TEST(Oracles, WithComputingThatCostsNothingEveryPolicyTakesItsBytesAndItsStartUps) {
  for_random_steps(50, {}, [](RandomStep step) {
    for (LayerCosts& layer : step.layers) layer.forward = layer.backward = 0;
    for_each_policy(step, [&](const PolicyRow& row, const Workload& workload) {
      const StepsResult result = run_steps(workload, row, small_sizes(row)).value();
      SimTime startups = 0;
      SimTime on_link = 0;
      for (const SentUnit& sent : result.order) {
        startups += sent.cost.startup;
        on_link += sent.cost.on_link;
      }
      EXPECT_EQ(result.compute, 0);
      if (is_one_of(row.name, {"end", "wfbp", "fifo", "mg-wfbp", "us-byte", "dear"})) {
        EXPECT_EQ(result.step, startups + on_link);
        return;
      }
      // Those with several in flight hide start-ups, but for the first one. Where two share a link,
      // each end is rounded up.
      EXPECT_GE(result.step, on_link + (result.order.empty() ? 0 : result.order[0].cost.startup));
      EXPECT_LE(result.step, on_link + startups + static_cast<SimTime>(result.order.size()));
    });
  });
}

TEST(Oracles, EveryByteTravelsOnce) {
  for_random_steps(50, {}, [](const RandomStep& step) {
    for_each_policy(step, [&](const PolicyRow& row, const Workload& workload) {
      const StepsResult result = run_steps(workload, row, small_sizes(row)).value();
      std::vector<int64_t> left;
      for (const LayerCosts& layer : step.layers) left.push_back(layer.gradient_bytes);
      std::vector<int64_t> scattered(left.size(), 0);
      for (const SentUnit& sent : result.order) {
        for (const UnitPart& part : sent.unit.parts) {
          const auto g = static_cast<size_t>(part.gradient);
          if (sent.unit.operation == Operation::kReduceScatter) {
            scattered[g] += part.bytes;
          } else {
            left[g] -= part.bytes;
          }
        }
      }
      EXPECT_THAT(left, ::testing::Each(0));
      if (row.name == "dear") {
        for (size_t g = 0; g < left.size(); ++g) {
          EXPECT_EQ(scattered[g], step.layers[g].gradient_bytes);
        }
      }
    });
  });
}

TEST(Oracles, TheSameStepGivesTheSameOrder) {
  for_random_steps(20, {}, [](const RandomStep& step) {
    for_each_policy(step, [&](const PolicyRow& row, const Workload& workload) {
      const StepsResult first = run_steps(workload, row, small_sizes(row)).value();
      EXPECT_EQ(run_steps(workload, row, small_sizes(row)).value(), first);
    });
  });
}

TEST(Oracles, MgWfbpIsNeverSlowerThanWfbp) {
  for_random_steps(500, {}, [](RandomStep step) {
    step.route.members = 2;  // so that nothing is rounded
    const Workload workload = chain_workload(step.layers, step.route);
    const auto run = [&](const char* name) {
      return run_steps(workload, *find_policy(name).value()).value().step;
    };
    EXPECT_LE(run("mg-wfbp"), run("wfbp"));
  });
}

// Where start-ups cost nothing and pieces are as small as one likes, the ready gradient that is
// needed first had best have the link at every moment.
SimTime least_step_without_startups(const RandomStep& step) {
  const auto num_layers = step.layers.size();
  std::vector<SimTime> left(num_layers, 0);
  std::vector<SimTime> arrival(num_layers, 0);
  SimTime now = 0;
  const auto serve_until = [&](SimTime end) {
    for (size_t l = 0; l < num_layers; ++l) {
      const SimTime served = std::min(left[l], end - now);
      left[l] -= served;
      now += served;
      if (served > 0) arrival[l] = now;
    }
    now = end;
  };
  SimTime backward_end = 0;
  for (size_t l = num_layers; l-- > 0;) {
    backward_end += step.layers[l].backward;
    serve_until(backward_end);
    left[l] = unit_cost(Operation::kAllReduce, step.layers[l].gradient_bytes, step.route).on_link;
    arrival[l] = backward_end;
  }
  serve_until(std::numeric_limits<SimTime>::max() / 2);
  SimTime used = backward_end;
  for (size_t l = 0; l < num_layers; ++l)
    used = std::max(used, arrival[l]) + step.layers[l].forward;
  return used;
}

TEST(Oracles, WithoutStartUpsNoPolicyIsFasterThanTheLinkByPriorityAtEveryMoment) {
  for_random_steps(100, {.most_startup_ns = 0}, [](const RandomStep& step) {
    const SimTime least = least_step_without_startups(step);
    for_each_policy(step, [&](const PolicyRow& row, const Workload& workload) {
      const StepsResult result = run_steps(workload, row, small_sizes(row)).value();
      // The bytes of each piece are rounded to a nanosecond, down at most by half.
      EXPECT_GE(result.step, least - static_cast<SimTime>(result.order.size()));
    });
  });
}

TEST(Oracles, WithoutStartUpsTinyPiecesByPriorityAreTheBest) {
  for_random_steps(50, {.most_bytes = 4'000, .most_startup_ns = 0}, [](RandomStep step) {
    // A byte takes a nanosecond, so nothing is rounded.
    step.route.members = 2;
    const Workload workload = chain_workload(step.layers, step.route);
    const SimTime least = least_step_without_startups(step);
    const auto run = [&](const char* name, const PolicyOptions& options) {
      return run_steps(workload, *find_policy(name).value(), {.policy = options}).value().step;
    };
    // Whatever becomes ready waits for one piece at most, and that once for each gradient.
    const auto late = 100 * static_cast<SimTime>(step.layers.size());
    EXPECT_LE(run("p3", {.chunk_bytes = 100}), least + late);
    EXPECT_LE(run("bytescheduler", {.chunk_bytes = 100, .credit_bytes = 1}), least + late);
    EXPECT_LE(run("trirace", {.chunk_bytes = 100}), least + 2 * late);
  });
}

TEST(Oracles, NoPolicyIsMoreThanThreeTimesAsFastAsFifo) {
  // The bound is for the order of what travels; that of start-ups has none.
  for_random_steps(200, {.most_startup_ns = 0}, [](const RandomStep& step) {
    const Workload workload = chain_workload(step.layers, step.route);
    const PolicyRow& fifo = *find_policy("fifo").value();
    const SimTime slow = run_steps(workload, fifo, small_sizes(fifo)).value().step;
    for_each_policy(step, [&](const PolicyRow& row, const Workload& same) {
      const SimTime fast = run_steps(same, row, small_sizes(row)).value().step;
      EXPECT_LE(slow, 3 * fast);
    });
  });
}

// The shortest step of all orders in which one transfer follows another and each carries any blocks
// of any gradients that are ready; it may also wait for the next gradient.
class AllOrders {
 public:
  AllOrders(const RandomStep& step, int64_t block_bytes) : route_(step.route) {
    for (const LayerCosts& layer : step.layers) {
      num_blocks_.push_back((layer.gradient_bytes + block_bytes - 1) / block_bytes);
      last_block_.push_back(layer.gradient_bytes - (num_blocks_.back() - 1) * block_bytes);
    }
    block_bytes_ = block_bytes;
    ready_.resize(step.layers.size());
    tail_.resize(step.layers.size() + 1, 0);
    for (size_t l = step.layers.size(); l-- > 0;) {
      backward_end_ += step.layers[l].backward;
      ready_[l] = backward_end_;
      tail_[l] = tail_[l + 1] + step.layers[l].forward;
    }
  }

  SimTime best() { return std::max(backward_end_ + tail_[0], best_from(0, num_blocks_)); }

 private:
  using Left = std::vector<int64_t>;

  // When the last forward may end if what is left is sent from `now` on.
  SimTime best_from(SimTime now, const Left& left) {
    if (std::ranges::all_of(left, [](int64_t blocks) { return blocks == 0; })) return 0;
    const auto [entry, is_new] = known_.try_emplace({now, left}, 0);
    if (!is_new) return entry->second;
    SimTime best = std::numeric_limits<SimTime>::max();
    SimTime next_ready = std::numeric_limits<SimTime>::max();
    for (const SimTime ready : ready_) {
      if (ready > now) next_ready = std::min(next_ready, ready);
    }
    if (next_ready != std::numeric_limits<SimTime>::max()) best = best_from(next_ready, left);
    Left sent(left.size(), 0);
    while (next_choice(now, left, sent)) best = std::min(best, best_with(now, left, sent));
    known_[{now, left}] = best;
    return best;
  }

  // Counts through all that may be sent at `now`; false: there is no more.
  [[nodiscard]] bool next_choice(SimTime now, const Left& left, Left& sent) const {
    for (size_t l = 0; l < left.size(); ++l) {
      const int64_t most = ready_[l] <= now ? left[l] : 0;
      if (sent[l] < most) {
        ++sent[l];
        return true;
      }
      sent[l] = 0;
    }
    return false;
  }

  SimTime best_with(SimTime now, const Left& left, const Left& sent) {
    Left rest = left;
    int64_t bytes = 0;
    for (size_t l = 0; l < left.size(); ++l) {
      rest[l] -= sent[l];
      bytes += sent[l] * block_bytes_;
      if (sent[l] > 0 && rest[l] == 0) bytes += last_block_[l] - block_bytes_;
    }
    const SimTime end = now + unit_cost(Operation::kAllReduce, bytes, route_).total();
    SimTime used = best_from(end, rest);
    for (size_t l = 0; l < left.size(); ++l) {
      if (sent[l] > 0 && rest[l] == 0) used = std::max(used, end + tail_[l]);
    }
    return used;
  }

  Route route_;
  int64_t block_bytes_ = 0;
  Left num_blocks_;
  std::vector<int64_t> last_block_;
  std::vector<SimTime> ready_;
  std::vector<SimTime> tail_;
  SimTime backward_end_ = 0;
  std::map<std::pair<SimTime, Left>, SimTime> known_;
};

void compare_with_all_orders(const RandomStep& step, int64_t block_bytes) {
  const SimTime best = AllOrders(step, block_bytes).best();
  const Workload workload = chain_workload(step.layers, step.route);
  const auto run = [&](const char* name, const PolicyOptions& options) {
    SCOPED_TRACE(name);
    const SimTime taken =
        run_steps(workload, *find_policy(name).value(), {.policy = options}).value().step;
    EXPECT_GE(taken, best);
    return taken;
  };
  run("wfbp", {});
  run("fifo", {.bucket_bytes = 2 * block_bytes});
  run("mg-wfbp", {});
  // One at a time: a start-up that hides behind other bytes is no order of this kind.
  if (step.route.link.latency_s == 0) run("p3", {.chunk_bytes = block_bytes});
  run("bytescheduler", {.chunk_bytes = block_bytes, .credit_bytes = 1});
  run("us-byte", {.chunk_bytes = block_bytes});
}

TEST(Oracles, OfSevenGradientsNoOrderOfOneTransferAfterTheOtherIsFasterThanTheBestOfAll) {
  const Sizes sizes{.most_layers = 7, .most_ns = 100, .most_bytes = 200, .most_startup_ns = 60};
  for_random_steps(20, sizes, [](RandomStep step) {
    step.route.members = 2;
    compare_with_all_orders(step, 200);
  });
}

TEST(Oracles, OfFourGradientsInBlocksNoOrderIsFasterThanTheBestOfAll) {
  const Sizes sizes{.most_layers = 4, .most_ns = 100, .most_bytes = 300, .most_startup_ns = 60};
  for_random_steps(20, sizes, [](RandomStep step) {
    step.route.members = 2;
    compare_with_all_orders(step, 100);
  });
}

TEST(Oracles, WithoutStartUpsNoPiecesByPriorityAreFasterThanTheBestOfAllOrders) {
  const Sizes sizes{.most_layers = 4, .most_ns = 100, .most_bytes = 300, .most_startup_ns = 0};
  for_random_steps(20, sizes, [](RandomStep step) {
    step.route.members = 2;
    compare_with_all_orders(step, 100);
  });
}

TEST(Oracles, TheBestOfAllOrdersOfTinyBlocksIsTheLinkByPriorityAtEveryMoment) {
  const Sizes sizes{.most_layers = 5, .most_ns = 3, .most_bytes = 2, .most_startup_ns = 0};
  for_random_steps(50, sizes, [](RandomStep step) {
    step.route.members = 2;
    EXPECT_EQ(AllOrders(step, 1).best(), least_step_without_startups(step));
  });
}

TEST(Oracles, ServersTakeWhatARingTakesWhereThereAreNoneAndTheBytesWhereThereAreAsManyAsMembers) {
  for (int32_t members = 2; members <= 8; ++members) {
    const Route ring{.link = {.latency_s = 0, .bytes_per_s = 1e9}, .members = members};
    Route servers = ring;
    servers.summing = Summing::kServers;
    const SimTime by_ring = unit_cost(Operation::kAllReduce, 1'000'000, ring).on_link;
    EXPECT_EQ(unit_cost(Operation::kAllReduce, 1'000'000, servers).on_link, by_ring);
    SimTime before = by_ring;
    for (int32_t k = 1; k <= members; ++k) {
      servers.num_servers = k;
      const SimTime now = unit_cost(Operation::kAllReduce, 1'000'000, servers).on_link;
      // Of two members each sends the other half of its bytes and half of the sums, so that no
      // server can help.
      if (members > 2) {
        EXPECT_LT(now, before);
      }
      before = now;
    }
    EXPECT_EQ(before, 1'000'000);
  }
}

}  // namespace
}  // namespace trireme
