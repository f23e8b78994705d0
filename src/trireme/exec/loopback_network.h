// LoopbackNetwork: what the ranks of a loopback run share. One lock guards it; a rank that waits
// sleeps on a condition variable of its own, and whoever completes its operation wakes it. Bytes
// are copied by the side that posts last.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/transport.h"
#include "trireme/graph/dtype.h"

namespace trireme {

class LoopbackNetwork {
 public:
  // One posted transfer or contribution of one rank. It is dropped when it has been waited for,
  // which is only after it is done, so nothing else points at it then.
  struct Operation {
    int32_t rank = 0;
    std::span<const std::byte> source = {};  // of a send
    std::span<std::byte> target = {};        // of a receive or an all-reduce
    DType dtype = DType::kUint8;
    bool is_done = false;
    std::optional<Error> error = std::nullopt;
  };

  explicit LoopbackNetwork(int32_t num_ranks) : ranks_(static_cast<size_t>(num_ranks)) {}

  // The calls of a rank's Transport. `operation.rank` is the rank that posts.
  Result<CommunicatorId> join(int32_t rank, const std::string& name,
                              const std::vector<int32_t>& members);
  Result<Ticket> post_transfer(int32_t sender, int32_t receiver, int32_t tag, Operation operation);
  Result<Ticket> post_all_reduce(CommunicatorId communicator, Operation operation);
  Status wait(int32_t rank, Ticket ticket);
  // Withdraws what the rank has posted, so that nobody touches its buffers any more, and fails what
  // others have posted towards it, so that nobody waits for it.
  void leave(int32_t rank);
  // Fails every wait from now on. The first message stays.
  void shut_down(const std::string& message);
  [[nodiscard]] int32_t num_ranks() const { return static_cast<int32_t>(ranks_.size()); }

 private:
  // The posted operations of one (sender, receiver, tag) that have no match yet; one side is empty.
  struct Channel {
    std::deque<Operation*> sends;
    std::deque<Operation*> receives;
  };

  struct Communicator {
    std::string name;
    std::vector<int32_t> members;
    // By member: its contributions to rounds that are not complete; front is the oldest round.
    std::vector<std::deque<Operation*>> contributions;
  };

  struct Rank {
    std::condition_variable has_changed;
    std::map<int32_t, Operation> operations;  // by ticket
    std::vector<std::string> joined;
    int32_t next_ticket = 0;
    bool has_left = false;
  };

  // All below: REQUIRES the lock.
  [[nodiscard]] Rank& state(int32_t rank) { return ranks_[static_cast<size_t>(rank)]; }
  Ticket add_operation(Operation operation);
  void finish(Operation& operation, std::optional<Error> error = std::nullopt);
  void match(Channel& channel, int32_t sender, int32_t receiver, int32_t tag);
  void reduce(Communicator& communicator);

  std::mutex mutex_;  // guards everything below
  std::vector<Rank> ranks_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, Channel> channels_;
  std::vector<Communicator> communicators_;
  std::optional<Error> shut_down_;
};

}  // namespace trireme
