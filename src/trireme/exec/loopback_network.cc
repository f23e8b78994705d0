#include "trireme/exec/loopback_network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

template <typename Number>
void add(std::span<std::byte> sum, std::span<const std::byte> term) {
  // Through memcpy, because a buffer may have any alignment.
  for (size_t offset = 0; offset < sum.size(); offset += sizeof(Number)) {
    Number left;
    Number right;
    std::memcpy(&left, &sum[offset], sizeof(Number));
    std::memcpy(&right, &term[offset], sizeof(Number));
    left += right;
    std::memcpy(&sum[offset], &left, sizeof(Number));
  }
}

}  // namespace

Result<CommunicatorId> LoopbackNetwork::join(int32_t rank, const std::string& name,
                                             const std::vector<int32_t>& members) {
  const std::scoped_lock lock(mutex_);
  if (shut_down_) return *shut_down_;
  const bool is_ascending =
      std::ranges::adjacent_find(members, std::ranges::greater_equal()) == members.end();
  if (!is_ascending || !std::ranges::binary_search(members, rank) || members.front() < 0 ||
      members.back() >= num_ranks()) {
    return Error{
        fmt::format("communicator {} of rank {}: members {} must be ascending, hold the "
                    "rank and lie in 0 to {}",
                    name, rank, fmt::join(members, ", "), num_ranks() - 1)};
  }
  std::vector<std::string>& joined = state(rank).joined;
  if (std::ranges::find(joined, name) != joined.end()) {
    return Error{fmt::format("rank {} joins communicator {} twice", rank, name)};
  }
  auto found = std::ranges::find(communicators_, name, &Communicator::name);
  if (found == communicators_.end()) {
    communicators_.push_back({name, members, std::vector<std::deque<Operation*>>(members.size())});
    found = communicators_.end() - 1;
  } else if (found->members != members) {
    return Error{fmt::format("communicator {}: rank {} names members {}, another rank named {}",
                             name, rank, fmt::join(members, ", "),
                             fmt::join(found->members, ", "))};
  }
  joined.push_back(name);
  return CommunicatorId(found - communicators_.begin());
}

Ticket LoopbackNetwork::add_operation(Operation operation) {
  Rank& owner = state(operation.rank);
  const Ticket ticket(owner.next_ticket);
  ++owner.next_ticket;
  owner.operations.emplace(ticket.value, std::move(operation));
  return ticket;
}

void LoopbackNetwork::finish(Operation& operation, std::optional<Error> error) {
  operation.is_done = true;
  operation.error = std::move(error);
  state(operation.rank).has_changed.notify_one();
}

Result<Ticket> LoopbackNetwork::post_transfer(int32_t sender, int32_t receiver, int32_t tag,
                                              Operation operation) {
  const std::scoped_lock lock(mutex_);
  if (shut_down_) return *shut_down_;
  const int32_t rank = operation.rank;
  const int32_t peer = rank == sender ? receiver : sender;
  if (peer < 0 || peer >= num_ranks() || peer == rank || tag < 0) {
    return Error{
        fmt::format("rank {} has no transfer with peer {} and tag {}: peers are 0 to {} "
                    "but itself, tags are not negative",
                    rank, peer, tag, num_ranks() - 1)};
  }
  const Ticket ticket = add_operation(std::move(operation));
  Operation& posted = state(rank).operations.at(ticket.value);
  Channel& channel = channels_[{sender, receiver, tag}];
  (rank == sender ? channel.sends : channel.receives).push_back(&posted);
  match(channel, sender, receiver, tag);
  if (!posted.is_done && state(peer).has_left) {
    finish(posted, Error{fmt::format("rank {} has left", peer)});
    channels_.erase({sender, receiver, tag});
  }
  return ticket;
}

void LoopbackNetwork::match(Channel& channel, int32_t sender, int32_t receiver, int32_t tag) {
  while (!channel.sends.empty() && !channel.receives.empty()) {
    Operation& send = *channel.sends.front();
    Operation& receive = *channel.receives.front();
    channel.sends.pop_front();
    channel.receives.pop_front();
    if (send.source.size() != receive.target.size()) {
      const Error error{fmt::format("rank {} sends {} bytes with tag {} where rank {} expects {}",
                                    sender, send.source.size(), tag, receiver,
                                    receive.target.size())};
      finish(send, error);
      finish(receive, error);
      continue;
    }
    std::ranges::copy(send.source, receive.target.begin());
    finish(send);
    finish(receive);
  }
}

Result<Ticket> LoopbackNetwork::post_all_reduce(CommunicatorId id, Operation operation) {
  const std::scoped_lock lock(mutex_);
  if (shut_down_) return *shut_down_;
  if (operation.dtype != DType::kFloat32 && operation.dtype != DType::kFloat64) {
    return Error{fmt::format("an all-reduce of {}: it must be f32 or f64",
                             dtype_info(operation.dtype).name)};
  }
  if (operation.target.size() % static_cast<size_t>(dtype_info(operation.dtype).size_bytes) != 0) {
    return Error{fmt::format("an all-reduce of {} bytes, which is no whole number of {}",
                             operation.target.size(), dtype_info(operation.dtype).name)};
  }
  TRIREME_CHECK(id.is_valid() && static_cast<size_t>(id.value) < communicators_.size(),
                "a communicator that nobody joined");
  Communicator& communicator = communicators_[static_cast<size_t>(id.value)];
  const auto member = std::ranges::find(communicator.members, operation.rank);
  TRIREME_CHECK(member != communicator.members.end(), "a communicator of other ranks");
  const Ticket ticket = add_operation(std::move(operation));
  const auto member_index = static_cast<size_t>(member - communicator.members.begin());
  Operation& posted = state(*member).operations.at(ticket.value);
  communicator.contributions[member_index].push_back(&posted);
  if (std::ranges::none_of(communicator.contributions, &std::deque<Operation*>::empty)) {
    reduce(communicator);
    return ticket;
  }
  for (size_t other = 0; other < communicator.members.size(); ++other) {
    const int32_t rank = communicator.members[other];
    if (communicator.contributions[other].empty() && state(rank).has_left) {
      communicator.contributions[member_index].pop_back();
      finish(posted, Error{fmt::format("rank {} has left", rank)});
      break;
    }
  }
  return ticket;
}

void LoopbackNetwork::reduce(Communicator& communicator) {
  std::vector<Operation*> round;
  for (std::deque<Operation*>& queue : communicator.contributions) {
    round.push_back(queue.front());
    queue.pop_front();
  }
  const Operation& first = *round.front();
  for (const Operation* operation : round) {
    if (operation->target.size() == first.target.size() && operation->dtype == first.dtype)
      continue;
    const Error error{fmt::format(
        "communicator {}: rank {} reduces {} bytes of {} where rank {} reduces {} bytes of {}",
        communicator.name, operation->rank, operation->target.size(),
        dtype_info(operation->dtype).name, first.rank, first.target.size(),
        dtype_info(first.dtype).name)};
    for (Operation* failed : round) finish(*failed, error);
    return;
  }
  std::vector<std::byte> sum(first.target.begin(), first.target.end());
  for (size_t member = 1; member < round.size(); ++member) {
    if (first.dtype == DType::kFloat32) {
      add<float>(sum, round[member]->target);
    } else {
      add<double>(sum, round[member]->target);
    }
  }
  for (Operation* operation : round) {
    std::ranges::copy(sum, operation->target.begin());
    finish(*operation);
  }
}

Status LoopbackNetwork::wait(int32_t rank, Ticket ticket) {
  std::unique_lock lock(mutex_);
  Rank& own = state(rank);
  const auto found = own.operations.find(ticket.value);
  TRIREME_CHECK(found != own.operations.end(), "a ticket is waited for exactly once");
  own.has_changed.wait(lock, [&] { return shut_down_ || found->second.is_done; });
  const std::optional<Error> error = shut_down_ ? shut_down_ : found->second.error;
  // After a shutdown no queue refers to operations any more, so this one may go as well.
  own.operations.erase(found);
  return error ? Status(*error) : Status();
}

void LoopbackNetwork::leave(int32_t rank) {
  const std::scoped_lock lock(mutex_);
  state(rank).has_left = true;
  const Error error{fmt::format("rank {} has left", rank)};
  for (auto it = channels_.begin(); it != channels_.end();) {
    const auto& [sender, receiver, tag] = it->first;
    if (sender != rank && receiver != rank) {
      ++it;
      continue;
    }
    for (Operation* operation : it->second.sends) finish(*operation, error);
    for (Operation* operation : it->second.receives) finish(*operation, error);
    it = channels_.erase(it);
  }
  for (Communicator& communicator : communicators_) {
    if (!std::ranges::binary_search(communicator.members, rank)) continue;
    for (std::deque<Operation*>& queue : communicator.contributions) {
      for (Operation* operation : queue) finish(*operation, error);
      queue.clear();
    }
  }
  state(rank).operations.clear();
}

void LoopbackNetwork::shut_down(const std::string& message) {
  const std::scoped_lock lock(mutex_);
  if (shut_down_) return;  // the first cause is the one to tell
  shut_down_ = Error{message};
  channels_.clear();
  for (Communicator& communicator : communicators_) {
    for (std::deque<Operation*>& queue : communicator.contributions) queue.clear();
  }
  for (Rank& rank : ranks_) rank.has_changed.notify_one();
}

}  // namespace trireme
