#include "trireme/transport/direct_loop.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {
namespace {

// A change of threads takes some 20 us on both sides, so it is not worth while for less.
constexpr std::chrono::microseconds kHandBack(200);
// A peer that copies has the next piece in a few us; one that sleeps is not waited for. Ranks may
// be more than cores, so this is far below what a time slice is.
constexpr std::chrono::microseconds kLookAround(20);

}  // namespace

DirectLoop::DirectLoop(int32_t rank, std::vector<DirectPeer> peers, WakeEvent wake,
                       std::chrono::milliseconds timeout, TransferListener* listener)
    : timeout_(timeout),
      engine_(rank, std::move(peers), std::move(wake), listener),
      thread_([this] { run(); }) {}

DirectLoop::~DirectLoop() {
  {
    const std::scoped_lock lock(mutex_);
    must_end_ = true;
    parked_.notify_one();
  }
  engine_.wake();
}

Ticket DirectLoop::post(const DirectOperation& operation) {
  std::unique_lock lock(mutex_);
  const Ticket ticket(next_ticket_++);
  open_.emplace(ticket.value, operation);
  posted_.push_back({.ticket = ticket, .operation = operation});
  const bool is_parked = is_parked_;
  lock.unlock();
  // A driver comes soon.
  if (is_parked && operation.kind != DirectOperation::Kind::kSend) return ticket;
  std::unique_lock turn(turn_, std::try_to_lock);
  // Who has the turn looks at what is posted before it sleeps.
  if (!turn.owns_lock()) return ticket;
  start_posted();
  if (!engine_.can_move()) engine_.hear(engine_.wait_events(std::chrono::milliseconds(0)));
  engine_.move_urgent();
  publish_ended(Driver::kRank);
  // What is small is gone, or waits for its receive.
  const bool needs_driver =
      is_parked ? engine_.can_move() && operation.bytes.size() > kMaxFrameData : !engine_.rest();
  turn.unlock();
  if (needs_driver) call_driver();
  return ticket;
}

void DirectLoop::call_driver() {
  {
    const std::scoped_lock lock(mutex_);
    is_called_ = is_parked_ && !awaited_.has_value();
    if (!is_called_) engine_.wake();
  }
  parked_.notify_one();
}

Status DirectLoop::wait(Ticket ticket) {
  {
    const std::scoped_lock lock(mutex_);
    TRIREME_CHECK(open_.contains(ticket.value) || done_.contains(ticket.value),
                  "a ticket is waited for exactly once");
    last_wait_ = Clock::now();
    if (is_over(ticket)) return take_outcome(ticket);
    awaited_ = ticket;
    is_called_ = false;
  }
  Clock::time_point deadline = Clock::now() + timeout_;
  uint64_t num_moved = 0;
  while (!drive_until_over(ticket)) {
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
  std::unique_lock lock(mutex_);
  awaited_.reset();
  last_wait_ = Clock::now();
  const bool must_call = sleeps_long_;
  Status outcome = take_outcome(ticket);
  lock.unlock();
  if (must_call) parked_.notify_one();
  return outcome;
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

bool DirectLoop::drive_until_over(Ticket ticket) {
  Drive driven = Drive::kAllMoved;
  {
    const std::scoped_lock turn(turn_);
    driven = drive(Driver::kRank);
  }
  const std::scoped_lock lock(mutex_);
  if (!is_over(ticket)) return false;
  // The loop's thread may sleep on what this one has heard.
  if (driven == Drive::kStopped && !is_parked_) engine_.wake();
  return true;
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

DirectLoop::Drive DirectLoop::drive(Driver driver) {
  engine_.rise();
  while (true) {
    start_posted();
    const bool has_more = engine_.move();
    publish_ended(driver);
    if (must_stop(driver)) return has_more ? Drive::kStopped : Drive::kAllMoved;
    if (has_more || (driver == Driver::kRank && look_around())) continue;
    if (engine_.rest()) return Drive::kAllMoved;
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

bool DirectLoop::is_hot(Clock::time_point now) const {
  return awaited_.has_value() || now - last_wait_ < kHandBack;
}

void DirectLoop::run() {
  while (park()) watch();
}

bool DirectLoop::park() {
  std::unique_lock lock(mutex_);
  is_parked_ = true;
  while (!must_end_ && is_hot(Clock::now()) && (awaited_.has_value() || !is_called_)) {
    const auto since = Clock::now() - last_wait_;
    sleeps_long_ = awaited_.has_value() && since >= kHandBack;
    if (sleeps_long_) {
      parked_.wait(lock);
    } else {
      parked_.wait_for(lock, kHandBack - std::min<Clock::duration>(since, kHandBack));
    }
    sleeps_long_ = false;
  }
  is_parked_ = false;
  is_called_ = false;
  return !must_end_;
}

void DirectLoop::watch() {
  DirectEvents events;
  while (true) {
    {
      const std::scoped_lock turn(turn_);
      engine_.hear(events);
      events.count = 0;
      drive(Driver::kLoop);
    }
    std::unique_lock lock(mutex_);
    if (must_end_) return;
    if (awaited_.has_value()) {
      // It may sleep on what this thread has heard.
      engine_.wake();
      return;
    }
    if (!posted_.empty()) continue;
    if (is_hot(Clock::now())) return;
    lock.unlock();
    events = engine_.wait_events(std::chrono::milliseconds(-1));
  }
}

}  // namespace trireme
