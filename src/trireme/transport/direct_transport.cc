#include "trireme/transport/direct_transport.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/transport/connect.h"
#include "trireme/transport/direct_loop.h"

namespace trireme {
namespace {

// FNV-1a: the same at all members.
uint64_t space_of(std::string_view name) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char each : name) digest = (digest ^ static_cast<uint8_t>(each)) * 0x100000001b3;
  return digest;
}

}  // namespace

DirectTransport::DirectTransport(const DirectOptions& options, std::vector<DirectPeer> peers,
                                 WakeEvent wake)
    : rank_(options.rank),
      num_ranks_(options.num_ranks),
      loop_(options.rank, std::move(peers), std::move(wake), options.timeout, options.listener) {}

Result<CommunicatorId> DirectTransport::join(const std::string& name,
                                             std::vector<int32_t> members) {
  const bool is_ascending =
      std::ranges::adjacent_find(members, std::ranges::greater_equal()) == members.end();
  if (!is_ascending || !std::ranges::binary_search(members, rank_) || members.front() < 0 ||
      members.back() >= num_ranks_) {
    return Error{
        fmt::format("communicator {} of rank {}: members {} must be ascending, hold "
                    "the rank and lie in 0 to {}",
                    name, rank_, fmt::join(members, ", "), num_ranks_ - 1)};
  }
  const uint64_t space = space_of(name);
  for (const DirectCommunicator& other : communicators_) {
    if (other.name == name) {
      return Error{fmt::format("rank {} joins communicator {} twice", rank_, name)};
    }
    if (other.space == space) {
      return Error{
          fmt::format("communicators {} and {} cannot be told apart by their digest; "
                      "give one another name",
                      other.name, name)};
    }
  }
  communicators_.push_back({.name = name, .members = std::move(members), .space = space});
  return CommunicatorId(static_cast<int64_t>(communicators_.size()) - 1);
}

Result<Ticket> DirectTransport::post_send(int32_t peer, int32_t tag,
                                          std::span<const std::byte> bytes) {
  return post_transfer({.kind = DirectOperation::Kind::kSend,
                        .peer = peer,
                        .tag = tag,
                        .bytes = {const_cast<std::byte*>(bytes.data()), bytes.size()},
                        .urgency = urgency_.value_or(Urgency::kUrgent)});
}

Result<Ticket> DirectTransport::post_receive(int32_t peer, int32_t tag,
                                             std::span<std::byte> bytes) {
  return post_transfer(
      {.kind = DirectOperation::Kind::kReceive, .peer = peer, .tag = tag, .bytes = bytes});
}

Result<Ticket> DirectTransport::post_all_reduce(CommunicatorId communicator, DType dtype,
                                                std::span<std::byte> bytes) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    return Error{fmt::format("an all-reduce of {}: it must be f32 or f64", dtype_info(dtype).name)};
  }
  if (bytes.size() % static_cast<size_t>(dtype_info(dtype).size_bytes) != 0) {
    return Error{fmt::format("an all-reduce of {} bytes, which is no whole number of {}",
                             bytes.size(), dtype_info(dtype).name)};
  }
  return loop_.post({.kind = DirectOperation::Kind::kAllReduce,
                     .communicator = &communicators_[static_cast<size_t>(communicator.value)],
                     .dtype = dtype,
                     .bytes = bytes,
                     .urgency = urgency_.value_or(Urgency::kBulk)});
}

Result<Ticket> DirectTransport::post_transfer(const DirectOperation& operation) {
  const int32_t peer = operation.peer;
  if (peer < 0 || peer >= num_ranks_ || peer == rank_ || operation.tag < 0) {
    return Error{
        fmt::format("rank {} has no transfer with peer {} and tag {}: peers are 0 to {} "
                    "but itself, tags are not negative",
                    rank_, peer, operation.tag, num_ranks_ - 1)};
  }
  return loop_.post(operation);
}

Result<std::unique_ptr<DirectTransport>> make_direct_transport(const DirectOptions& options,
                                                               ControlClient& client) {
  WakeEvent wake;
  TRIREME_TRY(std::vector<ConnectedPeer> connected, connect_peers(options, wake, client));
  std::vector<DirectPeer> peers;
  for (int32_t rank = 0; rank < options.num_ranks; ++rank) {
    ConnectedPeer& each = connected[static_cast<size_t>(rank)];
    DirectPeer& peer = peers.emplace_back();
    if (rank == options.rank) continue;
    peer.name = fmt::format("{} at {}", options.describe_rank(rank), each.host);
    peer.shares_memory = each.shares_memory;
    peer.streams = std::make_unique<PeerStreams>(PeerStreams::Streams{
        FrameStream(std::move(each.channels[0])), FrameStream(std::move(each.channels[1]))});
  }
  return std::make_unique<DirectTransport>(options, std::move(peers), std::move(wake));
}

}  // namespace trireme
