#include "trireme/exec/loopback_transport.h"

#include <latch>

#include <time.h>

#include <gtest/gtest.h>

#include "trireme/exec/run_ranks.h"
#include "trireme/exec/transport_acceptance.h"

namespace trireme {
namespace {

std::vector<std::unique_ptr<Transport>> make_ranks(const std::shared_ptr<LoopbackNetwork>& network,
                                                   int32_t num_ranks) {
  std::vector<std::unique_ptr<Transport>> ranks;
  ranks.reserve(static_cast<size_t>(num_ranks));
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(make_loopback_transport(network, rank));
  }
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportAcceptance,
                         testing::Values(TransportCase{
                             .name = "loopback",
                             .make =
                                 [](int32_t num_ranks) {
                                   return make_ranks(make_loopback_network(num_ranks), num_ranks);
                                 }}),
                         [](const auto& row) { return row.param.name; });

template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

TEST(Loopback, ShutdownFailsEveryWaitAndEverythingAfterIt) {
  const auto network = make_loopback_network(4);
  const auto ranks = make_ranks(network, 4);
  std::vector<float> buffer(4);
  std::vector<int32_t> done(1);
  // Rank 3 holds a ticket that is complete.
  const Ticket done_send = ranks[3]->post_send(0, 1, bytes_of(done)).value();
  const Ticket done_receive = ranks[0]->post_receive(3, 1, bytes_of(done)).value();
  std::latch is_waiting(3);
  const std::vector<Status> outcomes = run_ranks(4, [&](int32_t rank) -> Status {
    Transport& transport = *ranks[static_cast<size_t>(rank)];
    if (rank == 3) {
      is_waiting.wait();
      shut_down(*network, "rank 2 died");
      shut_down(*network, "a later cause");
      return transport.wait(done_send);
    }
    std::vector<float> own(4);
    Result<Ticket> ticket = Error{"nothing posted"};
    if (rank == 0) ticket = transport.post_send(1, 0, bytes_of(own));
    if (rank == 1) ticket = transport.post_receive(2, 0, bytes_of(own));
    if (rank == 2) {
      TRIREME_TRY(const CommunicatorId world, transport.join("world", {0, 1, 2, 3}));
      ticket = transport.post_all_reduce(world, DType::kFloat32, bytes_of(own));
    }
    is_waiting.count_down();
    TRIREME_TRY(const Ticket posted, ticket);
    return transport.wait(posted);
  });
  for (const Status& outcome : outcomes) EXPECT_EQ(message_of(outcome), "rank 2 died");
  EXPECT_EQ(message_of(ranks[0]->wait(done_receive)), "rank 2 died");
  EXPECT_EQ(message_of(ranks[0]->post_send(1, 0, bytes_of(buffer))), "rank 2 died");
  EXPECT_EQ(message_of(ranks[0]->join("late", {0, 1})), "rank 2 died");
}

int64_t thread_cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1000000 + time.tv_nsec / 1000;
}

TEST(Loopback, SleepsWhileItWaits) {
  const auto ranks = make_ranks(make_loopback_network(2), 2);
  const std::vector<Status> outcomes = run_ranks(2, [&](int32_t rank) -> Status {
    std::vector<int32_t> buffer(1);
    const int64_t start_us = thread_cpu_us();
    if (rank == 1) {
      // The other rank waits for this one, which is busy for 40 ms.
      while (thread_cpu_us() - start_us < 40000) {
      }
      TRIREME_TRY(const Ticket send, ranks[1]->post_send(0, 0, bytes_of(buffer)));
      return ranks[1]->wait(send);
    }
    TRIREME_TRY(const Ticket receive, ranks[0]->post_receive(1, 0, bytes_of(buffer)));
    Status status = ranks[0]->wait(receive);
    // A wait that spins burns about as much as the other rank; asleep it is some 50 us.
    EXPECT_LT(thread_cpu_us() - start_us, 10000);
    return status;
  });
  for (const Status& outcome : outcomes) EXPECT_EQ(message_of(outcome), "");
}

TEST(Loopback, SumsInAscendingOrderOfMembersWhateverTheTiming) {
  // In f32, (1e8 + -1e8) + 1 is 1, but 1e8 + (-1e8 + 1) is 0.
  const std::vector<float> terms = {1e8F, -1e8F, 1.0F};
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{0, 1, 2}, std::vector<size_t>{2, 1, 0}}) {
    const auto ranks = make_ranks(make_loopback_network(3), 3);
    std::vector<std::vector<float>> sums = {{terms[0]}, {terms[1]}, {terms[2]}};
    std::vector<Ticket> tickets(3);
    for (size_t rank : order) {
      const CommunicatorId world = ranks[rank]->join("world", {0, 1, 2}).value();
      tickets[rank] =
          ranks[rank]->post_all_reduce(world, DType::kFloat32, bytes_of(sums[rank])).value();
    }
    for (size_t rank : order) {
      EXPECT_TRUE(ranks[rank]->wait(tickets[rank]).ok());
      EXPECT_EQ(sums[rank][0], 1.0F);
    }
  }
}

TEST(Loopback, SumsBuffersOfAnyAlignment) {
  const auto ranks = make_ranks(make_loopback_network(1), 1);
  const CommunicatorId world = ranks[0]->join("world", {0}).value();
  std::vector<std::byte> bytes(17);
  const Ticket ticket =
      ranks[0]->post_all_reduce(world, DType::kFloat64, std::span(bytes).subspan(1)).value();
  EXPECT_TRUE(ranks[0]->wait(ticket).ok());
}

TEST(Loopback, RefusesWhatCannotBePosted) {
  const auto ranks = make_ranks(make_loopback_network(2), 2);
  std::vector<int32_t> numbers(1);
  const CommunicatorId world = ranks[0]->join("world", {0, 1}).value();
  EXPECT_EQ(message_of(ranks[0]->post_all_reduce(world, DType::kInt32, bytes_of(numbers))),
            "an all-reduce of i32: it must be f32 or f64");
  EXPECT_EQ(message_of(ranks[0]->post_all_reduce(world, DType::kFloat64, bytes_of(numbers))),
            "an all-reduce of 4 bytes, which is no whole number of f64");
  EXPECT_EQ(message_of(ranks[0]->post_send(2, 0, bytes_of(numbers))),
            "rank 0 has no transfer with peer 2 and tag 0: peers are 0 to 1 but itself, tags are "
            "not negative");
  EXPECT_EQ(message_of(ranks[1]->post_receive(1, 0, bytes_of(numbers))),
            "rank 1 has no transfer with peer 1 and tag 0: peers are 0 to 1 but itself, tags are "
            "not negative");
  EXPECT_EQ(message_of(ranks[0]->post_send(1, -1, bytes_of(numbers))),
            "rank 0 has no transfer with peer 1 and tag -1: peers are 0 to 1 but itself, tags are "
            "not negative");
}

TEST(Loopback, RefusesCommunicatorsThatDisagree) {
  const auto ranks = make_ranks(make_loopback_network(3), 3);
  EXPECT_TRUE(ranks[0]->join("a", {0, 1}).ok());
  EXPECT_EQ(message_of(ranks[0]->join("a", {0, 1})), "rank 0 joins communicator a twice");
  EXPECT_EQ(message_of(ranks[2]->join("a", {0, 2})),
            "communicator a: rank 2 names members 0, 2, another rank named 0, 1");
  EXPECT_EQ(message_of(ranks[2]->join("b", {0, 1})),
            "communicator b of rank 2: members 0, 1 must be ascending, hold the rank and lie in 0 "
            "to 2");
}

TEST(Loopback, NamesTheRankThatLeft) {
  auto ranks = make_ranks(make_loopback_network(3), 3);
  std::vector<float> buffer(1);
  std::vector<float> other(1);
  const CommunicatorId world = ranks[0]->join("world", {0, 1, 2}).value();
  const Ticket reduce = ranks[0]->post_all_reduce(world, DType::kFloat32, bytes_of(buffer)).value();
  const Ticket send = ranks[0]->post_send(2, 0, bytes_of(other)).value();
  ranks[2].reset();
  EXPECT_EQ(message_of(ranks[0]->wait(reduce)), "rank 2 has left");
  EXPECT_EQ(message_of(ranks[0]->wait(send)), "rank 2 has left");
  const Ticket late = ranks[0]->post_receive(2, 0, bytes_of(buffer)).value();
  EXPECT_EQ(message_of(ranks[0]->wait(late)), "rank 2 has left");
  EXPECT_TRUE(ranks[1]->join("world", {0, 1, 2}).ok());
  const Ticket late_reduce =
      ranks[1]->post_all_reduce(world, DType::kFloat32, bytes_of(other)).value();
  EXPECT_EQ(message_of(ranks[1]->wait(late_reduce)), "rank 2 has left");
}

}  // namespace
}  // namespace trireme
