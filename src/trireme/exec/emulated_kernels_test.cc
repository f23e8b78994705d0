#include "trireme/exec/emulated_kernels.h"

#include <gtest/gtest.h>

#include "trireme/exec/executor.h"
#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/run_ranks.h"
#include "trireme/schedule/builders.h"

namespace trireme {
namespace {

// Two stages; each number is another one.
StepCosts two_stages() {
  StepCosts costs;
  for (int64_t stage = 1; stage <= 2; ++stage) {
    costs.stages.push_back({.chunks = {{.forward = 10 * stage,
                                        .backward = 300 * stage,
                                        .input_gradient = 100 * stage,
                                        .weight_gradient = 200 * stage,
                                        .recompute = 4000 * stage,
                                        .activation_bytes = 1000 * stage,
                                        .gradient_bytes = 2000 * stage}},
                            .update = 50000 * stage,
                            .bucket_bytes = {402, 801}});
  }
  return costs;
}

Schedule schedule_of(const std::string& name, int32_t dp) {
  return build_schedule(name,
                        {.num_stages = 2,
                         .num_micro_batches = std::vector<int32_t>(static_cast<size_t>(dp), 3),
                         .num_buckets = dp == 1 ? std::vector<int32_t>{} : std::vector{2, 2}})
      .value();
}

TEST(EmulatedKernels, HoldARankForTheCostsOfItsPasses) {
  const StepCosts costs = two_stages();
  const std::vector<std::pair<const char*, SimTime>> expected = {
      {"1f1b", 3 * (10 + 300) + 50000},
      {"zb-h1", 3 * (10 + 100 + 200) + 50000},
      {"pre-recompute", 3 * (10 + 4000 + 300) + 50000}};
  for (const auto& [name, a_stage] : expected) {
    Schedule schedule = schedule_of(name, 1);
    const auto network = make_loopback_network(2);
    std::vector<EmulatedKernels::Held> held(2);
    const std::vector<Status> outcomes = run_ranks(2, [&](int32_t rank) -> Status {
      const auto transport = make_loopback_transport(network, rank);
      EmulatedKernels kernels(schedule, costs, rank, [](SimTime cost) { return cost + 1; });
      Executor executor(rank, kernels, *transport);
      TRIREME_TRY(executor.join(schedule));
      TRIREME_TRY(executor.run_step(schedule));
      held[static_cast<size_t>(rank)] = kernels.take_held();
      return Status();
    });
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(outcomes[rank].ok()) << name << ": " << outcomes[rank].error().message;
      const SimTime late = held[rank].lateness;
      EXPECT_EQ(held[rank].compute - late, a_stage * static_cast<SimTime>(rank + 1)) << name;
      EXPECT_GE(late, 7) << name;  // 1 ns a pass
    }
  }
}

// Bucket 0 is final after 100 of 300 ns, or 67 of 200; where a hold takes too long, what comes
// after it does not.
TEST(EmulatedKernels, ASumIsAnnouncedWithinTheLastPassThatAddsToIt) {
  StepCosts costs = two_stages();
  costs.stages[0].chunks[0].bucket_final = {100, 300};
  for (const auto& [name, expected] :
       {std::pair("1f1b", std::vector<std::string>{"100", "AR0", "195", "AR1"}),
        std::pair("zb-h1", std::vector<std::string>{"66", "AR0", "129", "AR1"})}) {
    const Schedule schedule = schedule_of(name, 2);
    std::vector<std::string> heard;
    EmulatedKernels kernels(schedule, costs, 0, [&heard](SimTime cost) {
      heard.push_back(std::to_string(cost));
      return cost + 5;
    });
    kernels.announce_to([&heard](const Action& sum) { heard.push_back(to_text(sum)); });
    const bool is_split = std::string_view(name) == "zb-h1";
    ASSERT_TRUE(
        kernels.compute({is_split ? ActionKind::kWeightGradient : ActionKind::kBackward, 2}).ok());
    EXPECT_EQ(heard, expected) << name;
    heard.clear();
    ASSERT_TRUE(kernels.compute({ActionKind::kForward, 2}).ok());
    EXPECT_EQ(heard, (std::vector<std::string>{"10"}));
  }
}

TEST(EmulatedKernels, MessagesHaveTheSizesOfTheirSenders) {
  const StepCosts costs = two_stages();
  const Schedule schedule = schedule_of("1f1b", 2);
  EmulatedKernels first(schedule, costs, 0);
  EmulatedKernels last(schedule, costs, 3);
  const auto size = [](EmulatedKernels& kernels, const Action& action) {
    return kernels.message(action).value().parts[0].size();
  };
  EXPECT_EQ(size(first, {ActionKind::kSendActivation, 1}), 1000);
  EXPECT_EQ(size(last, {ActionKind::kReceiveActivation, 1}), 1000);
  EXPECT_EQ(size(last, {ActionKind::kSendGradient, 1}), 4000);
  EXPECT_EQ(size(first, {ActionKind::kReceiveGradient, 1}), 4000);
  // Of whole elements.
  EXPECT_EQ(size(first, {ActionKind::kAllReduce, 0}), 404);
  EXPECT_EQ(size(first, {ActionKind::kAllReduce, 1}), 804);
  EXPECT_EQ(size(first, {ActionKind::kScalars, 0}), 8);
}

TEST(EmulatedKernels, RowExchangesHaveTheSizesThatAreExpected) {
  StepCosts costs = two_stages();
  costs.stages[0].rows = {.id_bytes = 81, .table_bytes = {401, 0}};
  const Schedule schedule =
      build_schedule("1f1b",
                     {.num_stages = 2, .num_micro_batches = {3, 3, 3}, .num_row_tables = {2, 0}})
          .value();
  EmulatedKernels kernels(schedule, costs, 0);
  const std::vector<std::pair<size_t, DType>> expected = {{3 * 2 * 8, DType::kFloat64},
                                                          {88, DType::kFloat64},
                                                          {404, DType::kFloat32},
                                                          {4, DType::kFloat32}};
  for (int32_t exchange = 0; exchange < 4; ++exchange) {
    const Message message = kernels.message({ActionKind::kRowExchange, exchange}).value();
    EXPECT_EQ(std::pair(message.parts[0].size(), message.dtype),
              expected[static_cast<size_t>(exchange)]);
  }
}

TEST(EmulatedKernels, MemoryIsUsedAgainOnceItsTransferIsOver) {
  const StepCosts costs = two_stages();
  const Schedule schedule = schedule_of("1f1b", 1);
  EmulatedKernels kernels(schedule, costs, 1);
  const auto receive = [&kernels](int32_t index) {
    return kernels.message({ActionKind::kReceiveActivation, index}).value();
  };
  const Message first = receive(0);
  Message second = receive(1);
  EXPECT_NE(first.parts[0].data(), second.parts[0].data());
  const std::byte* place = second.parts[0].data();
  second = {};
  EXPECT_EQ(receive(2).parts[0].data(), place);
}

}  // namespace
}  // namespace trireme
