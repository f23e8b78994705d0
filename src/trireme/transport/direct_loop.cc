#include "trireme/transport/direct_loop.h"

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

size_t slot_of(size_t rank, Urgency urgency) {
  return kNumUrgencies * rank + static_cast<size_t>(urgency);
}

std::string reduction_text(uint64_t whole) {
  return fmt::format("{} bytes of {}", whole >> 8,
                     dtype_info(static_cast<DType>(whole & 255)).name);
}

}  // namespace

DirectLoop::DirectLoop(int32_t rank, std::vector<DirectPeer> peers,
                       std::chrono::milliseconds timeout)
    : rank_(rank),
      timeout_(timeout),
      peers_(std::move(peers)),
      readiness_(kNumUrgencies * peers_.size()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  TRIREME_CHECK(epoll_.is_open(), "epoll_create1 failed: this process is out of file descriptors");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeSlot}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.fd(), &event);
  for (size_t slot = 0; slot < readiness_.size(); ++slot) {
    const FrameStream* stream = stream_at(slot);
    if (stream == nullptr) continue;
    event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = slot}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd(), &event);
  }
  thread_ = std::jthread([this] { run(); });
}

DirectLoop::~DirectLoop() {
  {
    const std::scoped_lock lock(mutex_);
    must_end_ = true;
  }
  wake_.notify();
}

FrameStream* DirectLoop::stream_at(size_t slot) const {
  PeerStreams* streams = peers_[slot / kNumUrgencies].streams.get();
  return streams == nullptr ? nullptr
                            : &streams->stream(static_cast<Urgency>(slot % kNumUrgencies));
}

Ticket DirectLoop::post(const DirectOperation& operation) {
  const std::scoped_lock lock(mutex_);
  const Ticket ticket(next_ticket_++);
  open_.emplace(ticket.value, operation);
  // The loop takes all that is posted at once.
  if (posted_.empty()) wake_.notify();
  posted_.push_back({.ticket = ticket, .operation = operation});
  return ticket;
}

Status DirectLoop::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const int32_t key = ticket.value;
  TRIREME_CHECK(open_.contains(key) || done_.contains(key), "a ticket is waited for exactly once");
  awaited_ = ticket;
  const auto is_over = [&] { return failure_.has_value() || done_.contains(key); };
  if (!has_changed_.wait_for(lock, timeout_, is_over)) {
    given_up_ = ticket;
    wake_.notify();
    has_changed_.wait(lock, is_over);
  }
  awaited_.reset();
  open_.erase(key);
  const auto found = done_.find(key);
  if (found == done_.end()) return *failure_;
  const std::optional<Error> error = std::move(found->second);
  done_.erase(found);
  return error.has_value() ? Status(*error) : Status();
}

void DirectLoop::run() {
  while (take_posted() == Life::kGoesOn) {
    if (!failing_.has_value()) serve_urgent();
    if (!failing_.has_value()) serve_bulk();
    publish_failure();
    wait_for_events(/*may_sleep=*/failing_.has_value() || !has_more());
  }
}

DirectLoop::Life DirectLoop::take_posted() {
  std::vector<Posted> taken;
  std::optional<DirectOperation> given_up;
  {
    const std::scoped_lock lock(mutex_);
    if (must_end_) return Life::kEnds;
    taken.swap(posted_);
    if (given_up_.has_value() && open_.contains(given_up_->value)) {
      given_up = open_.at(given_up_->value);
    }
    given_up_.reset();
  }
  for (const Posted& each : taken) {
    if (!failing_.has_value()) start(each);
  }
  if (given_up.has_value()) fail(why_no_end(*given_up));
  return Life::kGoesOn;
}

void DirectLoop::start(const Posted& posted) {
  const DirectOperation& operation = posted.operation;
  if (operation.kind == DirectOperation::Kind::kAllReduce) return start_all_reduce(posted);
  DirectPeer& peer = peers_[static_cast<size_t>(operation.peer)];
  if (peer.streams->is_ending())
    return fail(fmt::format("{} has closed its connection", peer.name));
  const MessageKey key{.space = 0, .tag = static_cast<uint64_t>(operation.tag)};
  const auto on_moved = [this, posted](std::optional<uint64_t> other_size) {
    if (!other_size.has_value()) return finish(posted.ticket);
    const DirectOperation& own = posted.operation;
    const bool sends = own.kind == DirectOperation::Kind::kSend;
    finish(
        posted.ticket,
        Error{fmt::format("rank {} sends {} bytes with tag {} where rank {} expects {}",
                          sends ? rank_ : own.peer, sends ? own.bytes.size() : *other_size, own.tag,
                          sends ? own.peer : rank_, sends ? *other_size : own.bytes.size())});
  };
  const uint64_t size = operation.bytes.size();
  if (operation.kind == DirectOperation::Kind::kSend) {
    peer.streams->send(key, operation.bytes, size, operation.urgency, on_moved);
  } else {
    peer.streams->receive(key, operation.bytes, size, on_moved);
  }
}

void DirectLoop::start_all_reduce(const Posted& posted) {
  const DirectOperation& operation = posted.operation;
  const DirectCommunicator& communicator = *operation.communicator;
  ReductionRequest request{.space = communicator.space,
                           .members = {},
                           .dtype = operation.dtype,
                           .bytes = operation.bytes,
                           .urgency = operation.urgency,
                           .on_done = {}};
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
    finish(posted.ticket);
    reductions_.erase(posted.ticket.value);
  };
  const auto added =
      reductions_.emplace(posted.ticket.value, std::make_unique<Reduction>(std::move(request)));
  added.first->second->start();
}

void DirectLoop::wait_for_events(bool may_sleep) {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 may_sleep ? -1 : 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kWakeSlot) {
      wake_.clear();
      continue;
    }
    Readiness& readiness = readiness_[event.data.u64];
    if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readiness.is_closing = true;
    if ((event.events & EPOLLIN) != 0 || readiness.is_closing) readiness.is_readable = true;
    if ((event.events & EPOLLOUT) != 0) readiness.is_blocked = false;
  }
}

StreamState DirectLoop::receive_on(size_t slot) {
  const StreamState state = stream_at(slot)->receive_some(*peers_[slot / kNumUrgencies].streams);
  const bool may_have_more =
      state == StreamState::kMoved || (state == StreamState::kIdle && readiness_[slot].is_closing);
  if (!may_have_more) readiness_[slot].is_readable = false;
  if (state == StreamState::kEnded) look_after_end(slot);
  return state;
}

StreamState DirectLoop::send_on(size_t slot) {
  const StreamState state = stream_at(slot)->send_some();
  if (state == StreamState::kIdle && stream_at(slot)->wants_to_send()) {
    readiness_[slot].is_blocked = true;
  }
  if (state == StreamState::kEnded) look_after_end(slot);
  return state;
}

void DirectLoop::serve_urgent() {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const size_t slot = slot_of(rank, Urgency::kUrgent);
    while (readiness_[slot].is_readable && !failing_.has_value()) receive_on(slot);
  }
  // After all that was received, since that is what makes grants and meets sends.
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const size_t slot = slot_of(rank, Urgency::kUrgent);
    const FrameStream* stream = stream_at(slot);
    while (stream != nullptr && !failing_.has_value() && !readiness_[slot].is_blocked &&
           stream->wants_to_send()) {
      send_on(slot);
    }
  }
}

void DirectLoop::serve_bulk() {
  const size_t num_peers = peers_.size();
  for (size_t i = 1; i <= num_peers; ++i) {
    const size_t slot = slot_of((last_received_ + i) % num_peers, Urgency::kBulk);
    if (!readiness_[slot].is_readable) continue;
    last_received_ = slot / kNumUrgencies;
    receive_on(slot);
    break;
  }
  for (size_t i = 1; i <= num_peers && !failing_.has_value(); ++i) {
    const size_t slot = slot_of((last_sent_ + i) % num_peers, Urgency::kBulk);
    const FrameStream* stream = stream_at(slot);
    if (stream == nullptr || readiness_[slot].is_blocked || !stream->wants_to_send()) continue;
    last_sent_ = slot / kNumUrgencies;
    send_on(slot);
    break;
  }
}

bool DirectLoop::has_more() const {
  for (size_t slot = 0; slot < readiness_.size(); ++slot) {
    const FrameStream* stream = stream_at(slot);
    if (stream == nullptr) continue;
    const bool may_send = !readiness_[slot].is_blocked && stream->wants_to_send();
    if (readiness_[slot].is_readable || may_send) return true;
  }
  return false;
}

void DirectLoop::look_after_end(size_t slot) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream_at(slot)->fd(), nullptr);
  const DirectPeer& peer = peers_[slot / kNumUrgencies];
  const PeerStreams& streams = *peer.streams;
  if (!streams.has_pending()) return;
  const std::string reason = streams.end_reason();
  // The other stream may still hold what was sent before the peer closed both.
  if (reason.empty() && !streams.has_ended()) return;
  fail(reason.empty() ? fmt::format("{} has closed its connection", peer.name)
                      : fmt::format("the connection to {} has ended: {}", peer.name, reason));
}

std::string DirectLoop::why_no_end(const DirectOperation& operation) const {
  const double seconds = std::chrono::duration<double>(timeout_).count();
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

void DirectLoop::finish(Ticket ticket, std::optional<Error> error) {
  const std::scoped_lock lock(mutex_);
  open_.erase(ticket.value);
  done_.emplace(ticket.value, std::move(error));
  if (awaited_ == ticket) has_changed_.notify_one();
}

// The first cause is the one to tell.
void DirectLoop::fail(const std::string& message) {
  if (!failing_.has_value()) failing_ = message;
}

void DirectLoop::publish_failure() {
  if (!failing_.has_value()) return;
  const std::scoped_lock lock(mutex_);
  if (failure_.has_value()) return;
  failure_ = Error{*failing_};
  for (size_t slot = 0; slot < readiness_.size(); ++slot) {
    FrameStream* stream = stream_at(slot);
    if (stream == nullptr) continue;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->fd(), nullptr);
    // A peer whose receive is refused learns of it, where its stream takes it at once.
    while (stream->has_headers() && stream->send_some() == StreamState::kMoved) {
    }
  }
  has_changed_.notify_one();
}

}  // namespace trireme
