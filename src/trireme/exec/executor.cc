#include "trireme/exec/executor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <time.h>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/exec/tags.h"
#include "trireme/schedule/early_sums.h"
#include "trireme/schedule/peers.h"

namespace trireme {

using enum ActionKind;

namespace {

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Executor::Executor(int32_t rank, Kernels& kernels, Transport& transport)
    : rank_(rank), kernels_(&kernels), transport_(transport) {}

Status Executor::join(const Schedule& schedule) {
  TRIREME_CHECK(!world_.is_valid(), "an executor joins its communicators once");
  const int32_t stage = stage_of(schedule, rank_);
  const int32_t replica = replica_of(schedule, rank_);
  TRIREME_TRY(world_, join_one("world", members(schedule, rank_, Action{kScalars})));
  if (schedule.num_micro_batches.size() > 1) {
    TRIREME_TRY(replicas_, join_one(fmt::format("dp.{}", stage),
                                    members(schedule, rank_, Action{kAllReduce})));
  }
  if (num_row_tables(schedule, stage) > 0) {
    TRIREME_TRY(rows_, join_one(fmt::format("rows.{}", stage),
                                members(schedule, rank_, Action{kRowExchange})));
  }
  tied_.resize(schedule.tied_groups.size());
  for (size_t group = 0; group < tied_.size(); ++group) {
    if (!std::ranges::binary_search(schedule.tied_groups[group], stage)) continue;
    const Action reduce{kTiedReduce, static_cast<int32_t>(group)};
    TRIREME_TRY(tied_[group], join_one(fmt::format("tied.{}.{}", group, replica),
                                       members(schedule, rank_, reduce)));
  }
  return Status();
}

Result<CommunicatorId> Executor::join_one(const std::string& name, std::vector<int32_t> members) {
  Result<CommunicatorId> joined = transport_.join(name, std::move(members));
  if (joined.ok()) return joined;
  return while_doing(fmt::format("joining communicator {}", name), joined.error());
}

Status Executor::run_step(const Schedule& schedule, const Schedule* next) {
  TRIREME_CHECK(world_.is_valid(), "an executor joins before it runs");
  TRIREME_CHECK(tied_.size() == schedule.tied_groups.size() &&
                    static_cast<size_t>(rank_) < schedule.ranks.size() &&
                    replicas_.is_valid() == (schedule.num_micro_batches.size() > 1) &&
                    rows_.is_valid() == (num_row_tables(schedule, stage_of(schedule, rank_)) > 0),
                "a schedule of another shape than the one that was joined");
  TRIREME_CHECK(
      (next_ != nullptr) == !schedule.num_found.empty() && (next_ == nullptr || next_ == &schedule),
      "a step that overlaps with the one before runs after it");
  TRIREME_CHECK((next != nullptr) == !schedule.num_ahead.empty(),
                "a step that runs ahead knows the next one");
  TRIREME_CHECK(next_ != nullptr || (receives_.empty() && sends_.empty() && collectives_.empty()),
                "no step runs after one that failed");
  next_ = next;
  transport_.set_urgency(schedule.communication.has_one_urgency ? std::optional(Urgency::kBulk)
                                                                : std::nullopt);
  listen(schedule);
  TRIREME_TRY(post_receives(schedule, static_cast<size_t>(schedule.look_ahead)));
  const std::vector<Action>& actions = schedule.ranks[static_cast<size_t>(rank_)];
  for (place_ = 0; place_ < actions.size(); ++place_) {
    const Action& action = actions[place_];
    if (action.kind == kAllReduce && place_ < next_sum_) continue;  // it was issued early
    set_current(describe(schedule, rank_, action));
    if (is_receive(action.kind)) {
      TRIREME_TRY(post_receives(schedule, static_cast<size_t>(schedule.look_ahead) + 1));
    }
    TRIREME_TRY(collect_collectives(schedule, &action));
    TRIREME_TRY(naming(schedule, action, run_action(schedule, action)));
    TRIREME_TRY(std::exchange(early_, Status()));
    if (sends_.size() > kMaxSendsInFlight) TRIREME_TRY(collect_oldest_send(schedule));
  }
  if (next == nullptr) {
    TRIREME_TRY(collect_collectives(schedule, nullptr));
    while (!sends_.empty()) TRIREME_TRY(collect_oldest_send(schedule));
  }
  begin_next_step(schedule);
  set_current(std::string(kBetweenSteps));
  return Status();
}

void Executor::listen(const Schedule& schedule) {
  schedule_ = &schedule;
  next_sum_ = 0;
  final_sums_.clear();
  if (!schedule.communication.sums_early) return kernels_->announce_to(nullptr);
  kernels_->announce_to([this](const Action& reduction) {
    if (!early_.ok()) return;
    final_sums_.push_back(reduction);
    early_ = issue_final_sums();
  });
}

Status Executor::issue_final_sums() {
  Status issued;
  next_sum_ = for_each_final_sum(
      schedule_->ranks[static_cast<size_t>(rank_)], std::max(next_sum_, place_ + 1),
      [this](const Action& sum) {
        return std::ranges::find(final_sums_, sum) != final_sums_.end();
      },
      [&](const Action& sum) {
        issued = naming(*schedule_, sum, issue_collective(sum));
        return issued.ok();
      });
  return issued;
}

void Executor::begin_next_step(const Schedule& schedule) {
  for (std::deque<Transfer>* transfers : {&receives_, &sends_, &collectives_}) {
    for (Transfer& transfer : *transfers) --transfer.action.batch;
  }
  const size_t count = schedule.ranks[static_cast<size_t>(rank_)].size();
  next_receive_ = next_ == nullptr ? 0 : next_receive_ - std::min(next_receive_, count);
  ++step_;
}

std::string Executor::current_action() const {
  const std::scoped_lock lock(mutex_);
  return current_;
}

Status Executor::naming(const Schedule& schedule, const Action& action, Status status) {
  if (status.ok()) return status;
  const std::string text = describe(schedule, rank_, action);
  set_current(text);
  return while_doing(text, status.error());
}

Status Executor::run_action(const Schedule& schedule, const Action& action) {
  if (is_compute(action.kind)) return run_compute(action);
  if (is_send(action.kind)) return run_send(schedule, action);
  if (is_receive(action.kind)) return run_receive(action);
  return issue_collective(action);
}

Status Executor::run_compute(const Action& action) {
  const int64_t place = begin_event(event_class_of(action.kind), action);
  const double begin = thread_cpu_seconds();
  TRIREME_TRY(kernels_->compute(action));
  compute_cpu_seconds_ += thread_cpu_seconds() - begin;
  end_event(place);
  return Status();
}

Status Executor::run_send(const Schedule& schedule, const Action& action) {
  const Counterpart other = other_side(schedule, rank_, action);
  TRIREME_TRY(Transfer transfer, ask_for_message(action, other.rank));
  sends_.push_back(std::move(transfer));
  Transfer& send = sends_.back();
  for (size_t part = 0; part < send.message.parts.size(); ++part) {
    const int32_t tag = transfer_tag(other.action, step_, static_cast<int32_t>(part));
    TRIREME_TRY(const Ticket ticket,
                transport_.post_send(other.rank, tag, send.message.parts[part]));
    send.tickets.push_back(ticket);
  }
  return Status();
}

Status Executor::collect_oldest_send(const Schedule& schedule) {
  const Action action = sends_.front().action;
  set_current(describe(schedule, rank_, action));
  TRIREME_TRY(naming(schedule, action, wait_for(sends_.front())));
  sends_.pop_front();
  return Status();
}

Status Executor::run_receive(const Action& action) {
  TRIREME_CHECK(!receives_.empty() && receives_.front().action == action,
                "receives are waited for in the order of the list");
  TRIREME_TRY(wait_for(receives_.front()));
  receives_.pop_front();
  return kernels_->complete(action);
}

Status Executor::post_receives(const Schedule& schedule, size_t count) {
  const std::vector<Action>& actions = schedule.ranks[static_cast<size_t>(rank_)];
  const size_t num_next = next_ == nullptr ? 0 : next_->ranks[static_cast<size_t>(rank_)].size();
  for (; receives_.size() < count && next_receive_ < actions.size() + num_next; ++next_receive_) {
    const bool is_ahead = next_receive_ >= actions.size();
    Action action = is_ahead
                        ? next_->ranks[static_cast<size_t>(rank_)][next_receive_ - actions.size()]
                        : actions[next_receive_];
    if (!is_receive(action.kind)) continue;
    // Of the batch after the next the kernels know no sizes. Whoever sends it has sent all that
    // this step waits for.
    if (is_ahead && action.batch > 0) break;
    if (is_ahead) ++action.batch;
    TRIREME_TRY(naming(schedule, action, post_receive(schedule, action)));
  }
  return Status();
}

Status Executor::post_receive(const Schedule& schedule, const Action& action) {
  const int32_t sender = other_side(schedule, rank_, action).rank;
  TRIREME_TRY(Transfer transfer, ask_for_message(action, sender));
  receives_.push_back(std::move(transfer));
  Transfer& receive = receives_.back();
  for (size_t part = 0; part < receive.message.parts.size(); ++part) {
    const int32_t tag = transfer_tag(action, step_, static_cast<int32_t>(part));
    TRIREME_TRY(const Ticket ticket,
                transport_.post_receive(sender, tag, receive.message.parts[part]));
    receive.tickets.push_back(ticket);
  }
  return Status();
}

Status Executor::issue_collective(const Action& action) {
  TRIREME_TRY(Transfer transfer, ask_for_message(action));
  collectives_.push_back(std::move(transfer));
  Transfer& collective = collectives_.back();
  for (const std::span<std::byte> part : collective.message.parts) {
    TRIREME_TRY(const Ticket ticket,
                transport_.post_all_reduce(communicator(action), collective.message.dtype, part));
    collective.tickets.push_back(ticket);
  }
  return Status();
}

Status Executor::collect_collectives(const Schedule& schedule, const Action* action) {
  bool has_waited = false;
  for (auto collective = collectives_.begin(); collective != collectives_.end();) {
    const Action issued = collective->action;
    if (action != nullptr && !waits_for(*action, issued)) {
      ++collective;
      continue;
    }
    has_waited = true;
    set_current(describe(schedule, rank_, issued));
    TRIREME_TRY(naming(schedule, issued, wait_for(*collective)));
    collective = collectives_.erase(collective);
    TRIREME_TRY(naming(schedule, issued, kernels_->complete(issued)));
  }
  if (has_waited && action != nullptr) set_current(describe(schedule, rank_, *action));
  return Status();
}

Result<Executor::Transfer> Executor::ask_for_message(const Action& action, int32_t peer) {
  TRIREME_TRY(Message message, kernels_->message(action));
  if (message.parts.size() > static_cast<size_t>(kMaxParts)) {
    return Error{fmt::format("the message has {} tensors, the executor moves at most {}",
                             message.parts.size(), kMaxParts)};
  }
  int64_t bytes = 0;
  for (const std::span<std::byte> part : message.parts) bytes += static_cast<int64_t>(part.size());
  const int64_t place = begin_event(event_class_of(action.kind), action, peer, bytes);
  return Transfer{
      .action = action, .message = std::move(message), .tickets = {}, .peer = peer, .place = place};
}

Status Executor::wait_for(Transfer& transfer) {
  const int64_t place = begin_event(EventClass::kWait, transfer.action, transfer.peer);
  // A ticket is waited for once, also when one after it fails.
  while (!transfer.tickets.empty()) {
    const Ticket ticket = transfer.tickets.front();
    transfer.tickets.erase(transfer.tickets.begin());
    TRIREME_TRY(transport_.wait(ticket));
  }
  end_event(place);
  end_event(transfer.place);
  return Status();
}

int64_t Executor::begin_event(EventClass event_class, const Action& action, int32_t peer,
                              int64_t bytes) {
  return recorder_ == nullptr ? -1 : recorder_->begin(event_class, action, peer, bytes);
}

void Executor::end_event(int64_t place) {
  if (recorder_ != nullptr) recorder_->end(place);
}

CommunicatorId Executor::communicator(const Action& action) const {
  if (action.kind == kAllReduce) return replicas_;
  if (action.kind == kRowExchange) return rows_;
  if (action.kind == kTiedReduce) return tied_[static_cast<size_t>(action.index)];
  return world_;
}

void Executor::set_current(std::string text) {
  const std::scoped_lock lock(mutex_);
  current_ = std::move(text);
}

}  // namespace trireme
