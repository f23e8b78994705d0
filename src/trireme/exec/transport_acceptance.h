// What every Transport must do, as a test suite that runs over any implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportAcceptance,
//                            testing::Values(TransportCase{"loopback", make_loopback_ranks}));
//
// Include it in one test file of a program. Ranks are threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/run_ranks.h"
#include "trireme/exec/transport.h"

namespace trireme {

using TransportFactory = std::function<std::vector<std::unique_ptr<Transport>>(int32_t num_ranks)>;

// What comes of a message that is larger than its receive: a bug of whoever posts.
enum class OnLargerMessage { kFailsTheWait, kEndsTheProcess };

struct TransportCase {
  std::string name;
  TransportFactory make;
  OnLargerMessage on_larger = OnLargerMessage::kFailsTheWait;
};
// How test runners show it.
inline void PrintTo(const TransportCase& transport, std::ostream* out) { *out << transport.name; }

template <typename Number>
std::span<std::byte> bytes_of(std::vector<Number>& numbers) {
  return std::as_writable_bytes(std::span(numbers));
}

class TransportAcceptance : public testing::TestWithParam<TransportCase> {
 protected:
  void make(int32_t num_ranks) { transports_ = GetParam().make(num_ranks); }
  Transport& at(int32_t rank) { return *transports_[static_cast<size_t>(rank)]; }

  // Runs body(rank, its transport) on a thread a rank.
  std::vector<Status> outcomes(const std::function<Status(int32_t, Transport&)>& body) {
    return run_ranks(static_cast<int32_t>(transports_.size()),
                     [&](int32_t rank) { return body(rank, at(rank)); });
  }
  void expect_ok(const std::function<Status(int32_t, Transport&)>& body) {
    for (const Status& outcome : outcomes(body)) {
      EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    }
  }

  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST_P(TransportAcceptance, DeliversMessagesOfOneTagInTheirOrder) {
  make(2);
  std::vector<std::vector<int32_t>> sent = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<std::vector<int32_t>> received(4, std::vector<int32_t>(2));
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < sent.size(); ++i) {
      TRIREME_TRY(const Ticket ticket, rank == 0
                                           ? transport.post_send(1, 9, bytes_of(sent[i]))
                                           : transport.post_receive(0, 9, bytes_of(received[i])));
      tickets.push_back(ticket);
    }
    // Tickets may be waited for in any order.
    for (size_t i = tickets.size(); i > 0; --i) TRIREME_TRY(transport.wait(tickets[i - 1]));
    return Status();
  });
  EXPECT_EQ(received, sent);
}

TEST_P(TransportAcceptance, KeepsTagsApart) {
  make(2);
  std::vector<std::vector<int32_t>> sent = {{1}, {2}, {3}};
  std::vector<std::vector<int32_t>> received(3, std::vector<int32_t>(1));
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    std::vector<Ticket> tickets;
    const std::vector<size_t> order =
        rank == 0 ? std::vector<size_t>{0, 1, 2} : std::vector<size_t>{2, 0, 1};
    for (size_t i : order) {
      const auto tag = static_cast<int32_t>(i) + (1 << 30);
      TRIREME_TRY(const Ticket ticket, rank == 0
                                           ? transport.post_send(1, tag, bytes_of(sent[i]))
                                           : transport.post_receive(0, tag, bytes_of(received[i])));
      tickets.push_back(ticket);
    }
    for (Ticket ticket : tickets) TRIREME_TRY(transport.wait(ticket));
    return Status();
  });
  EXPECT_EQ(received, sent);
}

TEST_P(TransportAcceptance, TakesAReceiveThatIsPostedBeforeOrAfterItsSend) {
  make(2);
  std::vector<int32_t> sent = {4, 5, 6};
  for (int32_t first_rank : {0, 1}) {
    std::vector<int32_t> received(3);
    std::latch is_posted(1);
    expect_ok([&](int32_t rank, Transport& transport) -> Status {
      if (rank != first_rank) is_posted.wait();
      TRIREME_TRY(const Ticket ticket, rank == 0
                                           ? transport.post_send(1, 0, bytes_of(sent))
                                           : transport.post_receive(0, 0, bytes_of(received)));
      if (rank == first_rank) is_posted.count_down();
      return transport.wait(ticket);
    });
    EXPECT_EQ(received, sent);
  }
}

TEST_P(TransportAcceptance, PostsSendsOfBothSidesBeforeEitherReceives) {
  make(2);
  // Larger than what a socket buffers.
  const size_t size = 1 << 20;
  std::vector<std::vector<int32_t>> sent = {std::vector<int32_t>(size, 3),
                                            std::vector<int32_t>(size, 4)};
  std::vector<std::vector<int32_t>> received(2, std::vector<int32_t>(size));
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    const auto index = static_cast<size_t>(rank);
    TRIREME_TRY(const Ticket send, transport.post_send(1 - rank, 5, bytes_of(sent[index])));
    TRIREME_TRY(const Ticket receive,
                transport.post_receive(1 - rank, 5, bytes_of(received[index])));
    TRIREME_TRY(transport.wait(receive));
    return transport.wait(send);
  });
  EXPECT_EQ(received[0], sent[1]);
  EXPECT_EQ(received[1], sent[0]);
}

TEST_P(TransportAcceptance, MovesMessagesOfZeroBytesInTheirPlace) {
  make(2);
  std::vector<std::vector<int32_t>> sent = {{}, {7}, {}};
  std::vector<std::vector<int32_t>> received = {{}, {0}, {}};
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    for (size_t i = 0; i < sent.size(); ++i) {
      TRIREME_TRY(const Ticket ticket, rank == 0
                                           ? transport.post_send(1, 2, bytes_of(sent[i]))
                                           : transport.post_receive(0, 2, bytes_of(received[i])));
      TRIREME_TRY(transport.wait(ticket));
    }
    return Status();
  });
  EXPECT_EQ(received, sent);
}

TEST_P(TransportAcceptance, SumsFloatsAndDoublesOverAllRanks) {
  make(3);
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    TRIREME_TRY(const CommunicatorId world, transport.join("world", {0, 1, 2}));
    std::vector<float> floats = {static_cast<float>(rank), 0.5F, -1.0F};
    std::vector<double> doubles = {1e300 * rank, 0.25};
    std::vector<float> none;
    for (std::vector<float>* numbers : {&floats, &none}) {
      TRIREME_TRY(const Ticket ticket,
                  transport.post_all_reduce(world, DType::kFloat32, bytes_of(*numbers)));
      TRIREME_TRY(transport.wait(ticket));
    }
    TRIREME_TRY(const Ticket ticket,
                transport.post_all_reduce(world, DType::kFloat64, bytes_of(doubles)));
    TRIREME_TRY(transport.wait(ticket));
    EXPECT_EQ(floats, (std::vector<float>{3.0F, 1.5F, -3.0F}));
    EXPECT_EQ(doubles, (std::vector<double>{3e300, 0.75}));
    return Status();
  });
}

TEST_P(TransportAcceptance, SumsWithinOverlappingCommunicators) {
  make(4);
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    const int32_t row = rank / 2;
    const int32_t column = rank % 2;
    TRIREME_TRY(const CommunicatorId in_row,
                transport.join("row." + std::to_string(row), {2 * row, 2 * row + 1}));
    TRIREME_TRY(const CommunicatorId in_column,
                transport.join("column." + std::to_string(column), {column, column + 2}));
    std::vector<double> number = {static_cast<double>(1 << rank)};
    TRIREME_TRY(const Ticket first,
                transport.post_all_reduce(in_row, DType::kFloat64, bytes_of(number)));
    TRIREME_TRY(transport.wait(first));
    EXPECT_EQ(number[0], row == 0 ? 3.0 : 12.0);
    TRIREME_TRY(const Ticket second,
                transport.post_all_reduce(in_column, DType::kFloat64, bytes_of(number)));
    TRIREME_TRY(transport.wait(second));
    EXPECT_EQ(number[0], 15.0);
    return Status();
  });
}

TEST_P(TransportAcceptance, RunsSeveralAllReducesAndTransfersAtOnce) {
  make(2);
  expect_ok([&](int32_t rank, Transport& transport) -> Status {
    TRIREME_TRY(const CommunicatorId world, transport.join("world", {0, 1}));
    std::vector<std::vector<float>> sums;
    sums.reserve(6);
    for (int32_t i = 0; i < 6; ++i) {
      sums.emplace_back(static_cast<size_t>(i) + 1, static_cast<float>(i + rank));
    }
    std::vector<int32_t> sent = {rank};
    std::vector<int32_t> received(1);
    std::vector<Ticket> tickets;
    for (std::vector<float>& sum : sums) {
      TRIREME_TRY(const Ticket reduce,
                  transport.post_all_reduce(world, DType::kFloat32, bytes_of(sum)));
      tickets.push_back(reduce);
    }
    TRIREME_TRY(const Ticket send, transport.post_send(1 - rank, 1, bytes_of(sent)));
    TRIREME_TRY(const Ticket receive, transport.post_receive(1 - rank, 1, bytes_of(received)));
    TRIREME_TRY(transport.wait(receive));
    TRIREME_TRY(transport.wait(send));
    for (Ticket ticket : tickets) TRIREME_TRY(transport.wait(ticket));
    EXPECT_EQ(received[0], 1 - rank);
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i], std::vector<float>(i + 1, static_cast<float>(2 * i + 1)));
    }
    return Status();
  });
}

TEST_P(TransportAcceptance, NeverTakesAMessageOfAnotherSizeForItsOwn) {
  const auto receive = [this](size_t num_sent, size_t num_received) {
    make(2);
    const std::vector<Status> all = outcomes([&](int32_t rank, Transport& transport) -> Status {
      std::vector<int32_t> buffer(rank == 0 ? num_sent : num_received);
      TRIREME_TRY(const Ticket ticket, rank == 0 ? transport.post_send(1, 0, bytes_of(buffer))
                                                 : transport.post_receive(0, 0, bytes_of(buffer)));
      return transport.wait(ticket);
    });
    return all[1].ok();
  };
  EXPECT_FALSE(receive(2, 4));
  if (GetParam().on_larger == OnLargerMessage::kFailsTheWait) {
    EXPECT_FALSE(receive(4, 2));
  } else {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(static_cast<void>(receive(4, 2)), "size");
  }
}

TEST_P(TransportAcceptance, TellsBothSizesOfATransferThatDoesNotFit) {
  if (GetParam().on_larger == OnLargerMessage::kEndsTheProcess) GTEST_SKIP();
  make(2);
  std::vector<int32_t> four(4);
  std::vector<int32_t> two(2);
  const Ticket send = at(0).post_send(1, 7, bytes_of(four)).value();
  const Ticket receive = at(1).post_receive(0, 7, bytes_of(two)).value();
  const std::string message = "rank 0 sends 16 bytes with tag 7 where rank 1 expects 8";
  EXPECT_EQ(at(0).wait(send).error().message, message);
  EXPECT_EQ(at(1).wait(receive).error().message, message);
}

TEST_P(TransportAcceptance, TellsBothSizesOfAnAllReduceThatDoesNotFit) {
  if (GetParam().on_larger == OnLargerMessage::kEndsTheProcess) GTEST_SKIP();
  make(2);
  std::vector<float> four(4);
  std::vector<double> two(2);
  const CommunicatorId here = at(0).join("world", {0, 1}).value();
  const CommunicatorId there = at(1).join("world", {0, 1}).value();
  const Ticket first = at(0).post_all_reduce(here, DType::kFloat32, bytes_of(four)).value();
  const Ticket second = at(1).post_all_reduce(there, DType::kFloat64, bytes_of(two)).value();
  const std::string own = "16 bytes of f32";
  const std::string other = "16 bytes of f64";
  // Whose operation is named first depends on where it is found out.
  const auto either_way = testing::AnyOf(
      "communicator world: rank 1 reduces " + other + " where rank 0 reduces " + own,
      "communicator world: rank 0 reduces " + own + " where rank 1 reduces " + other);
  EXPECT_THAT(at(0).wait(first).error().message, either_way);
  EXPECT_THAT(at(1).wait(second).error().message, either_way);
}

TEST_P(TransportAcceptance, FailsTheWaitForAPeerThatIsLost) {
  make(2);
  std::latch is_posted(1);
  const std::vector<Status> all = outcomes([&](int32_t rank, Transport& transport) -> Status {
    if (rank == 1) {
      is_posted.wait();
      transports_[1].reset();
      return Status();
    }
    std::vector<int32_t> buffer(4);
    TRIREME_TRY(const Ticket ticket, transport.post_receive(1, 0, bytes_of(buffer)));
    is_posted.count_down();
    return transport.wait(ticket);
  });
  EXPECT_FALSE(all[0].ok());
}

}  // namespace trireme
