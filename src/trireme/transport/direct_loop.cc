#include "trireme/transport/direct_loop.h"

#include <algorithm>
#include <array>
#include <utility>

#include <sys/epoll.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

// A change of threads takes some 20 us on both sides, so it is not worth while for less.
constexpr std::chrono::microseconds kHandBack(200);
// A peer that copies has the next piece in a few us; one that sleeps is not waited for. Ranks may
// be more than cores, so this is far below what a time slice is.
constexpr std::chrono::microseconds kLookAround(20);
// Of frames that the rank moves before it computes.
constexpr size_t kMostSettled = 64;
constexpr uint64_t kCalled = 0;
constexpr uint64_t kHasEvents = 1;

FileDescriptor make_loop_epoll(int call, int engine) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  TRIREME_CHECK(epoll.is_open(), "epoll_create1 failed: this process is out of file descriptors");
  // Told once for each call, so nobody has to clear it.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = kCalled}};
  ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, call, &event);
  event = {.events = 0, .data = {.u64 = kHasEvents}};
  ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, engine, &event);
  return epoll;
}

}  // namespace

DirectLoop::DirectLoop(int32_t rank, std::vector<DirectPeer> peers, WakeEvent wake,
                       std::chrono::milliseconds timeout, TransferListener* listener)
    : timeout_(timeout),
      engine_(rank, std::move(peers), std::move(wake), listener),
      epoll_(make_loop_epoll(call_.fd(), engine_.epoll_fd())),
      thread_([this] { run(); }) {}

DirectLoop::~DirectLoop() {
  const std::scoped_lock lock(mutex_);
  must_end_ = true;
  wake_loop();
}

Ticket DirectLoop::post(const DirectOperation& operation) {
  const bool sends = operation.kind == DirectOperation::Kind::kSend;
  std::unique_lock lock(mutex_);
  const Ticket ticket(next_ticket_++);
  open_.emplace(ticket.value, operation);
  posted_.push_back({.ticket = ticket, .operation = operation});
  const bool is_brief = sleep_ == Sleep::kBriefly;
  lock.unlock();
  // A driver comes soon.
  if (is_brief && !sends) return ticket;
  std::unique_lock turn(turn_, std::try_to_lock);
  // Who has the turn looks at what is posted before it sleeps.
  if (!turn.owns_lock()) return ticket;
  // Its grant may have come.
  if (sends) engine_.rise();
  start_posted();
  engine_.move_urgent();
  const bool may_leave = settle();
  publish_ended(Driver::kRank);
  turn.unlock();
  if (may_leave) return ticket;
  lock.lock();
  // The loop's thread looks soon, and what is small is gone or waits for its receive.
  if (sleep_ == Sleep::kBriefly && operation.bytes.size() <= kMaxFrameData) return ticket;
  is_called_ = true;
  wake_loop();
  return ticket;
}

void DirectLoop::call_driver() {
  const std::scoped_lock lock(mutex_);
  if (awaited_.has_value()) return engine_.wake();
  is_called_ = true;
  wake_loop();
}

void DirectLoop::wake_loop() {
  const Sleep sleep = std::exchange(sleep_, Sleep::kAwake);
  if (sleep == Sleep::kBriefly) brief_.notify_one();
  if (sleep == Sleep::kDeeply) call_.notify();
}

void DirectLoop::arm(bool is_armed) {
  if (is_armed == is_armed_) return;
  is_armed_ = is_armed;
  epoll_event event{.events = is_armed ? EPOLLIN | EPOLLONESHOT : 0U, .data = {.u64 = kHasEvents}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, engine_.epoll_fd(), &event);
}

Status DirectLoop::wait(Ticket ticket) {
  DirectOperation awaited;
  {
    const std::scoped_lock lock(mutex_);
    const auto open = open_.find(ticket.value);
    TRIREME_CHECK(open != open_.end() || done_.contains(ticket.value),
                  "a ticket is waited for exactly once");
    last_wait_ = Clock::now();
    if (is_over(ticket)) return take_outcome(ticket);
    awaited = open->second;
    awaited_ = ticket;
    is_called_ = false;
  }
  Clock::time_point deadline = Clock::now() + timeout_;
  uint64_t num_moved = 0;
  while (!drive_until_over(ticket, awaited)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const DirectEvents events = engine_.wait_events(std::max(left, std::chrono::milliseconds(0)));
    const std::scoped_lock turn(turn_);
    engine_.hear(events);
    if (left.count() > 0) continue;
    // A peer that is slow is not one that is lost.
    const bool has_progressed = num_moved != engine_.num_moved(ticket);
    num_moved = engine_.num_moved(ticket);
    deadline = Clock::now() + timeout_;
    if (!has_progressed) give_up(ticket);
  }
  const std::scoped_lock lock(mutex_);
  return take_outcome(ticket);
}

void DirectLoop::hold_bulk(int32_t peer, Hold hold) {
  {
    const std::scoped_lock turn(turn_);
    engine_.hold_bulk(peer, hold);
  }
  if (hold == Hold::kLetsGo) call_driver();
}

PeerThroughput DirectLoop::throughput(int32_t peer) {
  const std::scoped_lock turn(turn_);
  return engine_.throughput(peer);
}

std::optional<MeasuredLink> DirectLoop::take_measured(int32_t peer) {
  const std::scoped_lock turn(turn_);
  return engine_.take_measured(peer);
}

bool DirectLoop::drive_until_over(Ticket ticket, const DirectOperation& awaited) {
  const std::scoped_lock turn(turn_);
  drive(&awaited);
  {
    const std::scoped_lock lock(mutex_);
    if (!is_over(ticket)) {
      arm(false);
      return false;
    }
  }
  leave();
  return true;
}

bool DirectLoop::settle() {
  for (size_t i = 0; i < kMostSettled; ++i) {
    if (engine_.rest(nullptr)) return true;
    engine_.rise();
    if (!engine_.move_urgent()) break;
  }
  return engine_.rest(nullptr);
}

void DirectLoop::leave() {
  const auto sleeps_briefly = [this] {
    const std::scoped_lock lock(mutex_);
    return sleep_ == Sleep::kBriefly;
  };
  // What this thread has seen to is no event for the other one.
  if (engine_.has_sockets()) engine_.hear(engine_.wait_events(std::chrono::milliseconds(0)));
  const bool may_leave = sleeps_briefly() ? engine_.rest(nullptr) : settle();
  publish_ended(Driver::kRank);
  const std::scoped_lock lock(mutex_);
  awaited_.reset();
  last_wait_ = Clock::now();
  if (sleep_ == Sleep::kBriefly) return;
  if (may_leave) return arm(true);
  has_news_ = true;
  wake_loop();
}

void DirectLoop::give_up(Ticket ticket) {
  std::optional<DirectOperation> operation;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = open_.find(ticket.value);
    if (found != open_.end()) operation = found->second;
  }
  if (operation.has_value()) engine_.give_up(*operation, timeout_);
}

void DirectLoop::drive(const DirectOperation* awaited) {
  const Driver driver = awaited == nullptr ? Driver::kLoop : Driver::kRank;
  engine_.rise();
  bool has_moved = false;
  while (true) {
    start_posted();
    const bool has_more = engine_.move();
    publish_ended(driver);
    if (must_stop(driver)) return;
    has_moved = has_moved || has_more;
    // A peer that sends now has more in a moment; else it may compute for long.
    if (has_more || (has_moved && driver == Driver::kRank && look_around())) continue;
    if (engine_.rest(awaited)) return;
    engine_.rise();
  }
}

bool DirectLoop::look_around() {
  if (!engine_.shares_memory()) return false;
  const Clock::time_point end = Clock::now() + kLookAround;
  while (Clock::now() < end) {
    if (engine_.can_move()) return true;
  }
  return false;
}

bool DirectLoop::must_stop(Driver driver) {
  const std::scoped_lock lock(mutex_);
  if (driver == Driver::kRank) return !awaited_.has_value() || is_over(*awaited_);
  return awaited_.has_value() || must_end_;
}

void DirectLoop::start_posted() {
  std::vector<DirectPosted> taken;
  {
    const std::scoped_lock lock(mutex_);
    taken.swap(posted_);
  }
  for (const DirectPosted& each : taken) engine_.start(each);
}

void DirectLoop::publish_ended(Driver driver) {
  std::vector<DirectEnd> ended = engine_.take_ended();
  if (ended.empty() && !engine_.failure().has_value()) return;
  const std::scoped_lock lock(mutex_);
  for (DirectEnd& each : ended) {
    open_.erase(each.ticket.value);
    done_.emplace(each.ticket.value, std::move(each.error));
  }
  if (!failure_.has_value()) failure_ = engine_.failure();
  if (driver == Driver::kLoop && awaited_.has_value() && is_over(*awaited_)) engine_.wake();
}

bool DirectLoop::is_over(Ticket ticket) const {
  return failure_.has_value() || done_.contains(ticket.value);
}

Status DirectLoop::take_outcome(Ticket ticket) {
  open_.erase(ticket.value);
  const auto found = done_.find(ticket.value);
  if (found == done_.end()) return *failure_;
  const std::optional<Error> error = std::move(found->second);
  done_.erase(found);
  return error.has_value() ? Status(*error) : Status();
}

void DirectLoop::run() {
  while (sleep()) drive_as_loop();
}

bool DirectLoop::sleep() {
  std::unique_lock lock(mutex_);
  while (!must_end_) {
    const Clock::duration since = Clock::now() - last_wait_;
    const bool is_hot = since < kHandBack;
    if (!awaited_.has_value() && (is_called_ || (has_news_ && !is_hot))) {
      is_called_ = false;
      has_news_ = false;
      return true;
    }
    if (has_news_ && is_hot) {
      sleep_ = Sleep::kBriefly;
      brief_.wait_for(lock, kHandBack - since);
      sleep_ = Sleep::kAwake;
      continue;
    }
    if (!awaited_.has_value()) arm(true);
    sleep_ = Sleep::kDeeply;
    lock.unlock();
    std::array<epoll_event, 2> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    lock.lock();
    sleep_ = Sleep::kAwake;
    for (int i = 0; i < count; ++i) {
      if (events[static_cast<size_t>(i)].data.u64 != kHasEvents) continue;
      is_armed_ = false;
      has_news_ = true;
    }
  }
  return false;
}

void DirectLoop::drive_as_loop() {
  {
    const std::scoped_lock turn(turn_);
    engine_.hear(engine_.wait_events(std::chrono::milliseconds(0)));
    drive(nullptr);
  }
  const std::scoped_lock lock(mutex_);
  if (awaited_.has_value()) {
    // It may sleep on what this thread has heard.
    engine_.wake();
  } else if (!posted_.empty()) {
    is_called_ = true;
  }
}

}  // namespace trireme
