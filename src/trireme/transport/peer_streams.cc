#include "trireme/transport/peer_streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Queue>
typename Queue::mapped_type::value_type take_first(Queue& queues, typename Queue::iterator found) {
  typename Queue::mapped_type::value_type first = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues.erase(found);
  return first;
}

}  // namespace

void PeerStreams::send(MessageKey key, std::span<const std::byte> bytes, uint64_t whole,
                       Urgency urgency, MessageWatch watch) {
  Send posted{.bytes = bytes, .whole = whole, .urgency = urgency, .watch = std::move(watch)};
  const auto granted = grants_.find(key);
  if (granted == grants_.end()) {
    sends_[key].push_back(std::move(posted));
  } else {
    start(std::move(posted), take_first(grants_, granted));
  }
}

void PeerStreams::start(Send posted, const Grant& grant) {
  if (posted.whole != grant.whole || posted.bytes.size() != grant.size) {
    stream(Urgency::kUrgent)
        .queue({.kind = FrameKind::kRefusal, .id = grant.id, .whole = posted.whole});
    posted.watch.on_moved(grant.whole);
    return;
  }
  ++num_leaving_;
  sent_.start(Clock::now());
  posted.watch.on_progress(0);
  stream(posted.urgency)
      .queue_message(grant.id, posted.bytes,
                     [this, watch = std::move(posted.watch)](uint64_t num_bytes, bool is_last) {
                       const Clock::time_point now = Clock::now();
                       sent_.move(num_bytes, now);
                       if (num_bytes > 0) watch.on_progress(num_bytes);
                       if (!is_last) return;
                       sent_.end(now);
                       --num_leaving_;
                       watch.on_moved(std::nullopt);
                     });
}

void PeerStreams::receive(MessageKey key, std::span<std::byte> bytes, uint64_t whole,
                          MessageWatch watch) {
  const uint64_t id = next_id_++;
  const bool is_reducing = key.space != 0;
  if (is_reducing) ++num_reducing_;
  receives_.emplace(id,
                    Receive{.bytes = bytes, .is_reducing = is_reducing, .watch = std::move(watch)});
  stream(Urgency::kUrgent)
      .queue({.kind = FrameKind::kGrant,
              .space = key.space,
              .tag = key.tag,
              .id = id,
              .size = bytes.size(),
              .whole = whole});
}

Result<std::byte*> PeerStreams::place_of(const FrameHeader& header) {
  const auto found = receives_.find(header.id);
  if (found == receives_.end()) {
    return Error{fmt::format("it sent data for receive {}, which is not posted", header.id)};
  }
  // Frames of one message come in their order.
  Receive& receive = found->second;
  if (header.offset != receive.num_arrived ||
      header.size > receive.bytes.size() - receive.num_arrived) {
    return Error{fmt::format("it sent bytes {} to {} of receive {}, which expects byte {} of {}",
                             header.offset, header.offset + header.size, header.id,
                             receive.num_arrived, receive.bytes.size())};
  }
  if (!std::exchange(receive.has_met, true)) {
    received_.start(Clock::now());
    receive.watch.on_progress(0);
  }
  return receive.bytes.data() + header.offset;
}

Status PeerStreams::take(const FrameHeader& header) {
  if (header.kind == FrameKind::kGrant) {
    const Grant grant{.id = header.id, .size = header.size, .whole = header.whole};
    const MessageKey key{.space = header.space, .tag = header.tag};
    const auto waiting = sends_.find(key);
    if (waiting == sends_.end()) {
      grants_[key].push_back(grant);
    } else {
      start(take_first(sends_, waiting), grant);
    }
    return Status();
  }
  const auto found = receives_.find(header.id);
  if (found == receives_.end()) {
    return Error{fmt::format("it refused receive {}, which is not posted", header.id)};
  }
  Receive& receive = found->second;
  if (header.kind == FrameKind::kData) {
    const Clock::time_point now = Clock::now();
    receive.num_arrived += header.size;
    received_.move(header.size, now);
    if (header.size > 0) receive.watch.on_progress(header.size);
    if (receive.num_arrived < receive.bytes.size()) return Status();
    received_.end(now);
  }
  const OnMoved on_moved = std::move(receive.watch.on_moved);
  if (receive.is_reducing) --num_reducing_;
  receives_.erase(found);
  on_moved(header.kind == FrameKind::kData ? std::nullopt : std::optional(header.whole));
  return Status();
}

bool PeerStreams::is_ending() const {
  return std::ranges::any_of(streams_, &FrameStream::has_ended);
}

bool PeerStreams::has_ended() const {
  return std::ranges::all_of(streams_, &FrameStream::has_ended);
}

std::string PeerStreams::end_reason() const {
  for (const FrameStream& each : streams_) {
    if (!each.end_reason().empty()) return each.end_reason();
  }
  return "";
}

bool PeerStreams::has_pending() const {
  return !sends_.empty() || !receives_.empty() || num_leaving_ > 0;
}

}  // namespace trireme
