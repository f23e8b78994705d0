// Random combinations of transfers and all-reduces over the direct transport: what arrives is what
// arrives over the loopback, whatever the sizes, the order of posts and waits, urgency and delays.
// TRIREME_SEED repeats one.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/run_ranks.h"
#include "trireme/exec/transport.h"
#include "trireme/transport/direct_ranks.h"
#include "trireme/transport/wire.h"

namespace trireme {
namespace {

constexpr int32_t kNumRanks = 3;

struct Step {
  enum class Kind { kTransfer, kAllReduce };
  Kind kind = Kind::kTransfer;
  int32_t from = 0;
  int32_t to = 0;
  int32_t tag = 0;
  size_t communicator = 0;
  size_t count = 0;  // floats
};

const std::vector<std::vector<int32_t>> kCommunicators = {{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}};

size_t random_count(std::mt19937& random) {
  const size_t border = kMaxFrameData / sizeof(float);
  switch (random() % 16) {
    case 0:
      return border + random() % 3 - 1;
    case 1:
      return random() % (3 * border);
    default:
      return random() % 300;
  }
}

std::vector<Step> random_steps(std::mt19937& random) {
  std::vector<Step> steps(1 + random() % 8);
  for (Step& step : steps) {
    if (random() % 3 == 0) step.kind = Step::Kind::kAllReduce;
    step.from = static_cast<int32_t>(random() % kNumRanks);
    step.to = (step.from + 1 + static_cast<int32_t>(random() % (kNumRanks - 1))) % kNumRanks;
    step.tag = static_cast<int32_t>(random() % 2);
    step.communicator = random() % kCommunicators.size();
    step.count = random_count(random);
  }
  return steps;
}

// What a rank of a combination does and has; both transports run the same seed.
class RandomRank {
 public:
  RandomRank(int32_t rank, Transport& transport, const std::vector<CommunicatorId>& communicators)
      : rank_(rank), transport_(transport), communicators_(communicators) {}

  Status run(const std::vector<Step>& steps, uint32_t seed) {
    std::mt19937 random(seed + static_cast<uint32_t>(rank_));
    for (size_t i = 0; i < steps.size(); ++i) TRIREME_TRY(post(steps[i], i, random));
    std::shuffle(tickets_.begin(), tickets_.end(), random);
    for (const Ticket ticket : tickets_) TRIREME_TRY(transport_.wait(ticket));
    return Status();
  }

  std::vector<std::vector<float>> buffers;  // by step; empty where the rank has no part

 private:
  Status post(const Step& step, size_t index, std::mt19937& random) {
    std::vector<float>& buffer = buffers.emplace_back();
    const std::vector<int32_t>& members = kCommunicators[step.communicator];
    const bool reduces = step.kind == Step::Kind::kAllReduce;
    if (reduces ? !std::ranges::binary_search(members, rank_)
                : rank_ != step.from && rank_ != step.to) {
      return Status();
    }
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    if (random() % 2 == 0) {
      transport_.set_urgency(random() % 2 == 0 ? Urgency::kUrgent : Urgency::kBulk);
    }
    buffer.resize(step.count);
    if (reduces || rank_ == step.from) {
      for (size_t i = 0; i < buffer.size(); ++i) {
        buffer[i] = 1.0F / static_cast<float>(1 + (i * 7 + index * 31 + 1000U * rank_) % 9973);
      }
    }
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(buffer));
    Result<Ticket> ticket = Error{""};
    if (reduces) {
      ticket =
          transport_.post_all_reduce(communicators_[step.communicator], DType::kFloat32, bytes);
    } else if (rank_ == step.from) {
      ticket = transport_.post_send(step.to, step.tag, bytes);
    } else {
      ticket = transport_.post_receive(step.from, step.tag, bytes);
    }
    TRIREME_TRY(const Ticket posted, ticket);
    tickets_.push_back(posted);
    return Status();
  }

  int32_t rank_;
  Transport& transport_;
  const std::vector<CommunicatorId>& communicators_;
  std::vector<Ticket> tickets_;
};

using Buffers = std::vector<std::vector<std::vector<float>>>;  // of each rank

class Network {
 public:
  explicit Network(std::vector<std::unique_ptr<Transport>> ranks)
      : ranks_(std::move(ranks)), communicators_(kNumRanks) {
    for (int32_t rank = 0; rank < kNumRanks; ++rank) {
      for (size_t i = 0; i < kCommunicators.size(); ++i) {
        CommunicatorId id;
        if (std::ranges::binary_search(kCommunicators[i], rank)) {
          id = ranks_[static_cast<size_t>(rank)]
                   ->join("c" + std::to_string(i), kCommunicators[i])
                   .value();
        }
        communicators_[static_cast<size_t>(rank)].push_back(id);
      }
    }
  }

  Buffers run(const std::vector<std::vector<Step>>& all, uint32_t seed) {
    Buffers buffers(kNumRanks);
    const std::vector<Status> outcomes = run_ranks(kNumRanks, [&](int32_t rank) -> Status {
      const auto index = static_cast<size_t>(rank);
      for (size_t i = 0; i < all.size(); ++i) {
        RandomRank own(rank, *ranks_[index], communicators_[index]);
        TRIREME_TRY(own.run(all[i], seed + static_cast<uint32_t>(i)));
        std::ranges::move(own.buffers, std::back_inserter(buffers[index]));
      }
      return Status();
    });
    for (const Status& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    }
    return buffers;
  }

 private:
  std::vector<std::unique_ptr<Transport>> ranks_;
  std::vector<std::vector<CommunicatorId>> communicators_;  // by rank
};

void compare(size_t num_combinations, const std::function<void(DirectOptions&)>& change) {
  const char* given = std::getenv("TRIREME_SEED");
  const auto seed = given == nullptr ? std::random_device()()
                                     : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
  SCOPED_TRACE("TRIREME_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto loopback = make_loopback_network(kNumRanks);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int32_t rank = 0; rank < kNumRanks; ++rank) {
    ranks.push_back(make_loopback_transport(loopback, rank));
  }
  Network expected(std::move(ranks));
  Network direct(as_transports(make_direct_ranks(kNumRanks, change)));
  // Ranks go through a group without a barrier, so combinations overlap.
  constexpr size_t kGroup = 50;
  for (size_t done = 0; done < num_combinations; done += kGroup) {
    std::vector<std::vector<Step>> all(kGroup);
    for (std::vector<Step>& steps : all) steps = random_steps(random);
    const auto group_seed = static_cast<uint32_t>(random());
    ASSERT_TRUE(direct.run(all, group_seed) == expected.run(all, group_seed)) << "group " << done;
  }
}

TEST(DirectTransportRandomly, GivesWhatTheLoopbackGivesByTcp) { compare(500, by_tcp); }
TEST(DirectTransportRandomly, GivesWhatTheLoopbackGivesBySharedMemory) { compare(500, {}); }
// Rank 1 shares memory with nobody, ranks 0 and 2 do with each other.
TEST(DirectTransportRandomly, GivesWhatTheLoopbackGivesByBoth) {
  compare(500, [](DirectOptions& options) { options.shares_memory = options.rank != 1; });
}

}  // namespace
}  // namespace trireme
