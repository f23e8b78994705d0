#include "trireme/transport/direct_engine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr uint64_t kWakeSlot = UINT64_MAX;
// For how many frames that come in grants are held back, so that one system call takes several.
constexpr size_t kMaxHeldRounds = 4;

size_t slot_of(size_t rank, Urgency urgency) {
  return kNumUrgencies * rank + static_cast<size_t>(urgency);
}

// Between two looks at what the kernel has counted: so few that they take no time that one sees.
constexpr std::chrono::microseconds kLeastLookPause(4000);
constexpr std::chrono::microseconds kLookPauseOfPeer(200);

std::string reduction_text(uint64_t whole) {
  return fmt::format("{} bytes of {}", whole >> 8,
                     dtype_info(static_cast<DType>(whole & 255)).name);
}

}  // namespace

DirectEngine::DirectEngine(int32_t rank, std::vector<DirectPeer> peers, WakeEvent wake,
                           TransferListener* listener)
    : rank_(rank),
      listener_(listener),
      peers_(std::move(peers)),
      num_held_(peers_.size()),
      shares_memory_(std::ranges::any_of(peers_, &DirectPeer::shares_memory)),
      has_sockets_(std::ranges::any_of(
          peers_,
          [](const DirectPeer& peer) { return peer.streams != nullptr && !peer.shares_memory; })),
      links_(peers_.size()),
      look_pause_(std::max<std::chrono::microseconds>(
          kLeastLookPause, kLookPauseOfPeer * static_cast<int64_t>(peers_.size()))),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(std::move(wake)) {
  TRIREME_CHECK(epoll_.is_open(), "epoll_create1 failed: this process is out of file descriptors");
  // Told once for each notification, so nobody has to clear it.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = kWakeSlot}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.fd(), &event);
  for (const DirectPeer& peer : peers_) {
    for (const Urgency urgency : {Urgency::kUrgent, Urgency::kBulk}) {
      const size_t slot = streams_.size();
      streams_.push_back(peer.streams == nullptr ? nullptr : &peer.streams->stream(urgency));
      if (streams_.back() == nullptr) continue;
      event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = slot}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, streams_.back()->channel().fd(), &event);
    }
  }
}

void DirectEngine::start(const DirectPosted& posted) {
  if (failure_.has_value()) return;
  if (posted.operation.kind == DirectOperation::Kind::kAllReduce) {
    start_all_reduce(posted);
  } else {
    start_transfer(posted);
  }
  settle_failure();
}

void DirectEngine::start_transfer(const DirectPosted& posted) {
  const DirectOperation& operation = posted.operation;
  DirectPeer& peer = peers_[static_cast<size_t>(operation.peer)];
  if (peer.streams->is_ending())
    return fail(fmt::format("{} has closed its connection", peer.name));
  const MessageKey key{.space = 0, .tag = static_cast<uint64_t>(operation.tag)};
  const auto on_moved = [this, posted](std::optional<uint64_t> other_size) {
    if (!other_size.has_value()) return end(posted);
    const DirectOperation& own = posted.operation;
    const bool sends = own.kind == DirectOperation::Kind::kSend;
    end(posted,
        Error{fmt::format("rank {} sends {} bytes with tag {} where rank {} expects {}",
                          sends ? rank_ : own.peer, sends ? own.bytes.size() : *other_size, own.tag,
                          sends ? own.peer : rank_, sends ? *other_size : own.bytes.size())});
  };
  const auto on_progress = [this, ticket = posted.ticket, rank = operation.peer](
                               uint64_t num_bytes) { tell_progress(ticket, rank, num_bytes); };
  const MessageWatch watch{.on_moved = on_moved, .on_progress = on_progress};
  const uint64_t size = operation.bytes.size();
  if (operation.kind == DirectOperation::Kind::kSend) {
    peer.streams->send(key, operation.bytes, size, operation.urgency, watch);
  } else {
    peer.streams->receive(key, operation.bytes, size, watch);
  }
}

void DirectEngine::start_all_reduce(const DirectPosted& posted) {
  const DirectOperation& operation = posted.operation;
  const DirectCommunicator& communicator = *operation.communicator;
  ReductionRequest request{.space = communicator.space,
                           .members = {},
                           .dtype = operation.dtype,
                           .bytes = operation.bytes,
                           .urgency = operation.urgency,
                           .on_done = {},
                           .on_progress = {}};
  for (const int32_t member : communicator.members) {
    DirectPeer& peer = peers_[static_cast<size_t>(member)];
    if (peer.streams != nullptr && peer.streams->is_ending()) {
      return fail(fmt::format("{} has closed its connection", peer.name));
    }
    request.members.push_back({.rank = member, .streams = peer.streams.get()});
  }
  uint64_t& next_tag = next_tags_[communicator.space];
  request.first_tag = next_tag;
  next_tag += Reduction::num_tags(operation.bytes.size(), communicator.members.size());
  request.on_done = [this, posted](const std::optional<std::pair<int32_t, uint64_t>>& misfit) {
    const DirectOperation& own = posted.operation;
    if (misfit.has_value()) {
      return fail(fmt::format("communicator {}: rank {} reduces {} where rank {} reduces {}",
                              own.communicator->name, misfit->first, reduction_text(misfit->second),
                              rank_, reduction_text(reduction_whole(own.bytes.size(), own.dtype))));
    }
    end(posted);
    reductions_.erase(posted.ticket.value);
  };
  request.on_progress = [this, ticket = posted.ticket](int32_t rank, uint64_t num_bytes) {
    tell_progress(ticket, rank, num_bytes);
  };
  const auto added =
      reductions_.emplace(posted.ticket.value, std::make_unique<Reduction>(std::move(request)));
  added.first->second->start();
}

DirectEvents DirectEngine::wait_events(std::chrono::milliseconds timeout) const {
  DirectEvents found;
  const int count =
      ::epoll_wait(epoll_.get(), found.events.data(), static_cast<int>(found.events.size()),
                   timeout.count() < 0 ? -1 : static_cast<int>(timeout.count()));
  found.count = static_cast<size_t>(std::max(count, 0));
  return found;
}

void DirectEngine::hear(const DirectEvents& events) {
  for (const epoll_event& event : std::span(events.events).first(events.count)) {
    if (event.data.u64 == kWakeSlot) continue;
    streams_[event.data.u64]->channel().hear(event.events);
  }
}

Rest DirectEngine::rest_of(size_t rank, const DirectOperation* awaited) const {
  const bool is_awaited =
      awaited != nullptr && (awaited->kind == DirectOperation::Kind::kAllReduce ||
                             awaited->peer == static_cast<int32_t>(rank));
  if (is_awaited) return Rest::kForBytes;
  // A listener is told of what happens as it happens.
  const bool has_consequences = listener_ != nullptr || peers_[rank].streams->wants_frames();
  return has_consequences ? Rest::kForFrames : Rest::kUntilFull;
}

bool DirectEngine::rest(const DirectOperation* awaited) {
  if (failure_.has_value()) return true;
  bool may_sleep = true;
  for (size_t slot = 0; slot < streams_.size(); ++slot) {
    FrameStream* stream = streams_[slot];
    if (stream == nullptr || stream->has_ended()) continue;
    const Rest rest = rest_of(slot / kNumUrgencies, awaited);
    const bool may_leave = stream->channel().rest(rest, stream->wants_to_send());
    may_sleep = may_leave && !stream->can_send() && may_sleep;
  }
  return may_sleep;
}

void DirectEngine::rise() {
  for (FrameStream* stream : streams_) {
    if (stream != nullptr) stream->channel().rest(Rest::kAwake, /*for_room=*/false);
  }
}

bool DirectEngine::receive_on(size_t slot) {
  PeerStreams& receiver = *peers_[slot / kNumUrgencies].streams;
  const StreamState state = streams_[slot]->receive_some(receiver);
  if (state == StreamState::kEnded) look_after_end(slot);
  return state == StreamState::kMoved;
}

bool DirectEngine::send_on(size_t slot) {
  const StreamState state = streams_[slot]->send_some();
  if (state == StreamState::kEnded) look_after_end(slot);
  return state == StreamState::kMoved;
}

bool DirectEngine::move() {
  if (std::chrono::steady_clock::now() - last_look_ > look_pause_) look_at_links();
  bool may_have_more = serve_urgent();
  if (!may_have_more && can_move()) {
    // As long as bulk moves, nobody sleeps, so nobody else hears of what is urgent.
    if (has_sockets_) hear(wait_events(std::chrono::milliseconds(0)));
    may_have_more = serve_urgent() || serve_bulk();
  }
  settle_failure();
  return may_have_more && !failure_.has_value();
}

bool DirectEngine::move_urgent() {
  const bool may_have_more = serve_urgent();
  settle_failure();
  return may_have_more && !failure_.has_value();
}

bool DirectEngine::serve_urgent() {
  bool has_moved = false;
  for (size_t slot = slot_of(0, Urgency::kUrgent); slot < streams_.size(); slot += kNumUrgencies) {
    FrameStream* stream = streams_[slot];
    if (stream == nullptr) continue;
    const bool has_received = !failure_.has_value() && stream->can_receive() && receive_on(slot);
    has_moved = has_moved || has_received;
    if (failure_.has_value() || !stream->can_send()) continue;
    size_t& num_held = num_held_[slot / kNumUrgencies];
    if (has_received && stream->has_only_headers() && num_held++ < kMaxHeldRounds) continue;
    num_held = 0;
    has_moved = send_on(slot) || has_moved;
  }
  return has_moved;
}

bool DirectEngine::serve_bulk() {
  const size_t num_peers = peers_.size();
  bool has_moved = false;
  for (size_t i = 1; i <= num_peers && !failure_.has_value(); ++i) {
    const size_t slot = slot_of((last_received_ + i) % num_peers, Urgency::kBulk);
    if (streams_[slot] == nullptr || !streams_[slot]->can_receive()) continue;
    last_received_ = slot / kNumUrgencies;
    has_moved = receive_on(slot);
    break;
  }
  for (size_t i = 1; i <= num_peers && !failure_.has_value(); ++i) {
    const size_t slot = slot_of((last_sent_ + i) % num_peers, Urgency::kBulk);
    if (streams_[slot] == nullptr || !streams_[slot]->can_send()) continue;
    last_sent_ = slot / kNumUrgencies;
    has_moved = send_on(slot) || has_moved;
    break;
  }
  return has_moved || can_move();
}

bool DirectEngine::can_move() const {
  return !failure_.has_value() && std::ranges::any_of(streams_, [](const FrameStream* stream) {
    return stream != nullptr && (stream->can_receive() || stream->can_send());
  });
}

void DirectEngine::stop_watching(FrameStream& stream) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream.channel().fd(), nullptr);
}

void DirectEngine::look_after_end(size_t slot) {
  stop_watching(*streams_[slot]);
  const DirectPeer& peer = peers_[slot / kNumUrgencies];
  const PeerStreams& streams = *peer.streams;
  if (!streams.has_pending()) return;
  const std::string reason = streams.end_reason();
  // The other stream may still hold what was sent before the peer closed both.
  if (reason.empty() && !streams.has_ended()) return;
  fail(reason.empty() ? fmt::format("{} has closed its connection", peer.name)
                      : fmt::format("the connection to {} has ended: {}", peer.name, reason));
}

std::string DirectEngine::why_no_end(const DirectOperation& operation,
                                     std::chrono::milliseconds timeout) const {
  const double seconds = std::chrono::duration<double>(timeout).count();
  if (operation.kind == DirectOperation::Kind::kAllReduce) {
    std::vector<std::string> names;
    for (const int32_t member : operation.communicator->members) {
      const DirectPeer& peer = peers_[static_cast<size_t>(member)];
      if (peer.streams != nullptr && peer.streams->has_pending()) names.push_back(peer.name);
    }
    return fmt::format("communicator {}: {} took no part in an all-reduce for {} s",
                       operation.communicator->name, fmt::join(names, ", "), seconds);
  }
  const bool sends = operation.kind == DirectOperation::Kind::kSend;
  return fmt::format("{} has not {} {} bytes with tag {} for {} s",
                     peers_[static_cast<size_t>(operation.peer)].name, sends ? "taken" : "sent",
                     operation.bytes.size(), operation.tag, seconds);
}

void DirectEngine::give_up(const DirectOperation& operation, std::chrono::milliseconds timeout) {
  fail(why_no_end(operation, timeout));
  settle_failure();
}

std::vector<DirectEnd> DirectEngine::take_ended() { return std::exchange(ended_, {}); }

// Several messages of an all-reduce meet, but it starts once.
void DirectEngine::tell_progress(Ticket ticket, int32_t peer, uint64_t num_bytes) {
  const auto [moved, is_start] = moved_.try_emplace(ticket.value, 0);
  moved->second += num_bytes;
  if (listener_ == nullptr || (num_bytes == 0 && !is_start)) return;
  using Kind = TransferEvent::Kind;
  listener_->hear({.kind = is_start ? Kind::kStart : Kind::kProgress,
                   .ticket = ticket,
                   .peer = peer,
                   .num_bytes = moved->second},
                  *this);
}

void DirectEngine::end(const DirectPosted& posted, std::optional<Error> error) {
  const uint64_t num_bytes = num_moved(posted.ticket);
  moved_.erase(posted.ticket.value);
  ended_.push_back({.ticket = posted.ticket, .error = std::move(error)});
  if (listener_ == nullptr) return;
  listener_->hear({.kind = TransferEvent::Kind::kEnd,
                   .ticket = posted.ticket,
                   .peer = posted.operation.peer,
                   .num_bytes = num_bytes},
                  *this);
}

uint64_t DirectEngine::num_moved(Ticket ticket) const {
  const auto found = moved_.find(ticket.value);
  return found == moved_.end() ? 0 : found->second;
}

void DirectEngine::hold_bulk(int32_t peer, Hold hold) {
  PeerStreams* streams = peers_[static_cast<size_t>(peer)].streams.get();
  if (streams != nullptr) streams->stream(Urgency::kBulk).hold(hold);
}

PeerThroughput DirectEngine::throughput(int32_t peer) const {
  const PeerStreams* streams = peers_[static_cast<size_t>(peer)].streams.get();
  return streams == nullptr ? PeerThroughput() : streams->throughput();
}

void DirectEngine::look_at_links() {
  std::vector<std::optional<SentCounts>> counts(peers_.size());
  for (size_t p = 0; p < peers_.size(); ++p) {
    if (peers_[p].streams == nullptr || peers_[p].shares_memory) continue;
    for (const Urgency urgency : {Urgency::kUrgent, Urgency::kBulk}) {
      const auto stream = peers_[p].streams->stream(urgency).channel().sent_counts();
      if (!stream.has_value()) continue;
      SentCounts& sum = counts[p].has_value() ? *counts[p] : counts[p].emplace();
      sum.confirmed_bytes += stream->confirmed_bytes;
      sum.busy_us += stream->busy_us;
      sum.least_round_trip_us = stream->least_round_trip_us;
    }
  }
  links_.look(counts);
  last_look_ = std::chrono::steady_clock::now();
}

std::optional<MeasuredLink> DirectEngine::take_measured(int32_t peer) {
  look_at_links();
  return links_.take(static_cast<size_t>(peer));
}

// The first cause is the one to tell.
void DirectEngine::fail(const std::string& message) {
  if (!failure_.has_value()) failure_ = Error{message};
}

void DirectEngine::settle_failure() {
  if (!failure_.has_value() || is_settled_) return;
  is_settled_ = true;
  for (FrameStream* stream : streams_) {
    if (stream == nullptr) continue;
    stop_watching(*stream);
    // A peer whose receive is refused learns of it, where its stream takes it at once.
    while (stream->has_headers() && stream->send_some() == StreamState::kMoved) {
    }
  }
}

}  // namespace trireme
