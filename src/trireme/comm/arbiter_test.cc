#include "trireme/comm/arbiter.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SimTime kBound = 100;

PostedTransfer sum(int64_t id, std::vector<int32_t> path = {0, 1}) {
  return {.id = id, .communicator = 0, .urgency = 1, .path = std::move(path), .has_receive = true};
}
PostedTransfer message(int64_t id, std::vector<int32_t> path = {0, 2}) {
  return {.id = id, .communicator = 1, .urgency = 0, .path = std::move(path), .has_receive = true};
}

TEST(Arbiter, LetsATransferStartAtOnceWhereNothingMoreUrgentIsPosted) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(sum(7), 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(7));
  EXPECT_EQ(arbiter.next_tick(10), std::nullopt);
}

TEST(Arbiter, HoldsATransferUntilTheMoreUrgentOneOnItsLinkIsOver) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(message(1), 10);
  arbiter.on_posted(sum(2), 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(1));
  arbiter.on_started(1, 10);
  EXPECT_THAT(arbiter.may_start(20), IsEmpty());
  arbiter.on_done(1);
  EXPECT_THAT(arbiter.may_start(30), ElementsAre(2));
}

TEST(Arbiter, DoesNotHoldForATransferOverOtherLinks) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(message(1, {2, 3}), 10);
  arbiter.on_posted(sum(2), 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(1, 2));
}

TEST(Arbiter, DoesNotHoldForATransferOfTheSameUrgency) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(message(1), 10);
  PostedTransfer equal = message(2);
  equal.communicator = 5;
  arbiter.on_posted(equal, 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(1, 2));
}

TEST(Arbiter, DoesNotHoldForATransferWhoseReceiveIsNotPosted) {
  Arbiter arbiter(kBound);
  PostedTransfer early = message(1);
  early.has_receive = false;
  arbiter.on_posted(early, 10);
  arbiter.on_posted(sum(2), 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(1, 2));
  arbiter.on_receive_posted(1);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(1));
}

TEST(Arbiter, DoesNotHoldForATransferThatWaitsBehindAnotherOfItsCommunicator) {
  Arbiter arbiter(kBound);
  PostedTransfer first = message(1, {8});
  first.has_receive = false;
  arbiter.on_posted(first, 10);
  arbiter.on_posted(message(2), 10);
  arbiter.on_posted(sum(3), 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(1, 3));
  // Now it is next.
  arbiter.on_started(1, 10);
  EXPECT_THAT(arbiter.may_start(10), ElementsAre(2));
}

TEST(Arbiter, LetsATransferGoThatWasHeldForAsLongAsTheBound) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(message(1), 10);
  arbiter.on_started(1, 10);
  arbiter.on_posted(sum(2), 15);
  EXPECT_THAT(arbiter.may_start(15), IsEmpty());
  EXPECT_EQ(arbiter.next_tick(15), 115);
  EXPECT_THAT(arbiter.may_start(114), IsEmpty());
  EXPECT_THAT(arbiter.may_start(115), ElementsAre(2));
  EXPECT_EQ(arbiter.next_tick(115), std::nullopt);
}

TEST(Arbiter, CountsTheBoundFromWhenATransferIsNextInItsCommunicator) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(sum(1), 0);
  arbiter.on_posted(sum(2), 0);
  arbiter.on_started(1, 60);
  arbiter.on_posted(message(3), 60);
  EXPECT_EQ(arbiter.next_tick(60), 160);
}

TEST(Arbiter, KeepsTheOrderOfACommunicator) {
  Arbiter arbiter(kBound);
  PostedTransfer urgent = sum(2);
  urgent.urgency = 0;
  arbiter.on_posted(sum(1), 0);
  arbiter.on_posted(urgent, 0);
  EXPECT_THAT(arbiter.may_start(0), ElementsAre(1));
  EXPECT_DEATH(arbiter.on_started(2, 0), "a transfer overtakes another of its communicator");
}

TEST(Arbiter, RefusesToHearThatSomethingIsOverThatHasNotStarted) {
  Arbiter arbiter(kBound);
  arbiter.on_posted(sum(1), 0);
  EXPECT_DEATH(arbiter.on_done(1), "a transfer is over that has not started");
  EXPECT_DEATH(arbiter.on_posted(sum(1), 0), "a transfer was posted twice");
}

uint64_t seed() {
  const char* given = std::getenv("TRIREME_SEED");
  return given != nullptr ? std::stoull(given) : std::random_device{}();
}

// What a test knows of a transfer that it has posted.
struct Known {
  PostedTransfer transfer;
  SimTime may_go_since = 0;  // since when nothing but the arbiter kept it
  SimTime end = 0;           // once it has started
  bool has_started = false;
};

// Transfers of four communicators at random times over six links; they move only when their receive
// is posted, which comes at a random time, too.
class RandomStream {
 public:
  explicit RandomStream(uint64_t value) : random_(value), arbiter_(kBound) {}

  void run(int64_t num_transfers) {
    while (num_posted_ < num_transfers || !known_.empty()) {
      if (num_posted_ < num_transfers && draw(3) == 0) post();
      post_a_receive();
      end_what_is_over();
      start_what_may();
      check_bound();
      now_ = next_time();
    }
    EXPECT_TRUE(arbiter_.is_idle());
    EXPECT_GT(num_held_, 0);
  }

 private:
  int64_t draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  void post() {
    std::vector<int32_t> path;
    for (int32_t link = 0; link < 6; ++link) {
      if (draw(3) == 0) path.push_back(link);
    }
    const auto communicator = static_cast<int32_t>(draw(4));
    PostedTransfer transfer{.id = num_posted_++,
                            .communicator = communicator,
                            .urgency = communicator % 3,
                            .path = path,
                            .has_receive = draw(2) == 0};
    arbiter_.on_posted(transfer, now_);
    known_.push_back({.transfer = transfer, .may_go_since = now_});
  }

  void post_a_receive() {
    for (Known& known : known_) {
      if (known.transfer.has_receive || draw(8) != 0) continue;
      known.transfer.has_receive = true;
      arbiter_.on_receive_posted(known.transfer.id);
    }
  }

  void end_what_is_over() {
    std::erase_if(known_, [&](const Known& known) {
      if (!known.has_started || known.end > now_ || !known.transfer.has_receive) return false;
      arbiter_.on_done(known.transfer.id);
      return true;
    });
  }

  void start_what_may() {
    while (true) {
      const std::vector<int64_t> ids = arbiter_.may_start(now_);
      if (ids.empty()) return;
      for (const int64_t id : ids) {
        const auto known =
            std::ranges::find(known_, id, [](const Known& k) { return k.transfer.id; });
        // Those posted before it in its communicator have started.
        for (auto before = known_.begin(); before != known; ++before) {
          EXPECT_TRUE(before->has_started ||
                      before->transfer.communicator != known->transfer.communicator);
        }
        num_held_ += known->may_go_since < now_ ? 1 : 0;
        arbiter_.on_started(id, now_);
        known->has_started = true;
        known->end = now_ + draw(150);
        // The next of the communicator may go from now on.
        const auto next = std::ranges::find_if(known_, [&](const Known& other) {
          return !other.has_started && other.transfer.communicator == known->transfer.communicator;
        });
        if (next != known_.end()) next->may_go_since = now_;
      }
    }
  }

  // The first of each communicator that has not started is younger than the bound.
  void check_bound() {
    std::vector<int32_t> seen;
    for (const Known& known : known_) {
      if (known.has_started || std::ranges::count(seen, known.transfer.communicator) != 0) continue;
      seen.push_back(known.transfer.communicator);
      EXPECT_LT(now_ - known.may_go_since, kBound);
    }
  }

  SimTime next_time() {
    const SimTime next = now_ + draw(20);
    return std::min(next, arbiter_.next_tick(now_).value_or(next));
  }

  std::mt19937_64 random_;
  Arbiter arbiter_;
  SimTime now_ = 0;
  int64_t num_posted_ = 0;
  int64_t num_held_ = 0;
  std::vector<Known> known_;  // as they were posted, until they are over
};

TEST(Arbiter, StartsAllOfARandomStreamInOrderAndHoldsNoneBeyondTheBound) {
  const uint64_t first = seed();
  for (uint64_t i = 0; i < 20; ++i) {
    SCOPED_TRACE("TRIREME_SEED=" + std::to_string(first + i));
    RandomStream(first + i).run(300);
  }
}

}  // namespace
}  // namespace trireme
