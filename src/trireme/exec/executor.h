// Executor: runs one rank's list of a verified Schedule over its Kernels and its Transport.
//
//   Executor executor(rank, kernels, transport);
//   executor.join(schedule)           once: the communicators that the schedules of this run use
//   executor.run_step(schedule)       once a step
//   executor.run_step(schedule, next) where the step overlaps with the next one
//
// Receives are posted `look_ahead` receives ahead of the one that is waited for. Sends are posted
// and collected when the step ends, or when kMaxSendsInFlight newer ones are posted: that bounds
// the memory they hold, and cannot deadlock, since verified schedules survive sends that block at
// once. A collective is issued at its place in the list and waited for by the first action that
// needs its result (waits_for()), so that what is between runs while it travels; what nothing needs
// is waited for when the step ends. With early sums an AR is issued before its place, when the
// kernels tell that its gradients are final, once those before it in the list are. Tags (tags.h)
// separate kind, micro-batch, chunk and part, so transfers that are in flight together cannot be
// mistaken for each other.
//
// Where a step overlaps with the next (Schedule::num_ahead), its receives are posted ahead beyond
// its end, and what it sends and sums stays in flight; the next step waits for it. Between the two,
// the kernels are told that what was of the next batch is of this one now.
//
// One thread runs an executor; current_action() may be called from any other.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/kernels.h"
#include "trireme/exec/transport.h"
#include "trireme/schedule/schedule.h"
#include "trireme/trace/recorder.h"

namespace trireme {

inline constexpr std::string_view kBetweenSteps = "between steps";

// Destroy it after the transport has stopped using its buffers: after a step that failed it holds
// the memory of the transfers that are still posted.
class Executor {
 public:
  Executor(int32_t rank, Kernels& kernels, Transport& transport);

  // REQUIRES: a schedule whose shape is right, and called once. Joins "world" (all ranks),
  // "dp.<stage>" (the replicas of this rank's stage, when dp > 1), "rows.<stage>" (the same, when
  // the stage has row tables) and "tied.<group>.<replica>" for each tied group that this rank's
  // stage holds.
  Status join(const Schedule& schedule);

  // The steps to come compute with these. REQUIRES: between two steps.
  void use(Kernels& kernels) { kernels_ = &kernels; }

  // The steps to come are recorded there; nullptr: nowhere. REQUIRES: between two steps.
  void record(Recorder* recorder) { recorder_ = recorder; }

  // REQUIRES: joined; verified, of the same shape (stages, replicas, tied groups) as the one
  // joined. On an error the step is lost: other ranks may wait for this one, so the caller ends the
  // run.
  // `next`: what the next call runs; it is needed where this step runs passes of it ahead, and must
  // be absent elsewhere.
  Status run_step(const Schedule& schedule, const Schedule* next = nullptr);

  // Processor time that passes have taken of the thread that runs them, since it was made.
  [[nodiscard]] double compute_cpu_seconds() const { return compute_cpu_seconds_; }

  // What the rank is doing, for people: "RA3 (activations of micro-batch 3 from rank 0)", or
  // kBetweenSteps. After a step that failed: the action that failed. Any thread.
  [[nodiscard]] std::string current_action() const;

 private:
  // One action's communication that is posted and not yet waited for.
  struct Transfer {
    Action action;
    Message message;
    std::vector<Ticket> tickets;  // by part
    int32_t peer = -1;            // of a transfer
    int64_t place = -1;           // of its event (recorder.h)
  };

  Result<CommunicatorId> join_one(const std::string& name, std::vector<int32_t> members);
  Status run_action(const Schedule& schedule, const Action& action);
  Status run_send(const Schedule& schedule, const Action& action);
  Status run_receive(const Action& action);
  Status issue_collective(const Action& action);
  // Hears from the kernels what is final, where the schedule wants it.
  void listen(const Schedule& schedule);
  // Of the AR whose turn it is, those that are final.
  Status issue_final_sums();
  // Of those that are in flight, waits for what the action needs; without an action for all.
  Status collect_collectives(const Schedule& schedule, const Action* action);
  Status run_compute(const Action& action);
  Status collect_oldest_send(const Schedule& schedule);
  // What is in flight is now counted from the next step.
  void begin_next_step(const Schedule& schedule);
  // Posts the receives of this rank's list until `count` are posted and not yet waited for.
  Status post_receives(const Schedule& schedule, size_t count);
  Status post_receive(const Schedule& schedule, const Action& action);
  // Puts the action before the message of an error.
  Status naming(const Schedule& schedule, const Action& action, Status status);
  Result<Transfer> ask_for_message(const Action& action, int32_t peer = -1);
  Status wait_for(Transfer& transfer);
  // Around what lasts, and without effect where nothing is recorded.
  int64_t begin_event(EventClass event_class, const Action& action, int32_t peer = -1,
                      int64_t bytes = 0);
  void end_event(int64_t place);
  [[nodiscard]] CommunicatorId communicator(const Action& action) const;
  void set_current(std::string text);

  int32_t rank_;
  Kernels* kernels_;
  Transport& transport_;
  Recorder* recorder_ = nullptr;
  CommunicatorId world_;
  CommunicatorId replicas_;
  // Of the same ranks: AR that are issued early come in no order with SX.
  CommunicatorId rows_;
  std::vector<CommunicatorId> tied_;  // by tied group; invalid where this rank is no member
  // The step that runs, and what the one before has left in flight.
  std::deque<Transfer> receives_;
  std::deque<Transfer> sends_;
  std::deque<Transfer> collectives_;  // in the order in which they were issued
  // From where the next receive to post is looked for: a position in the lists of this step and the
  // next one after each other.
  size_t next_receive_ = 0;
  // Of early sums: the list and the place in it, the place behind the AR that were issued, those
  // that are final, and what went wrong with one.
  const Schedule* schedule_ = nullptr;
  size_t place_ = 0;
  size_t next_sum_ = 0;
  std::vector<Action> final_sums_;
  Status early_;
  const Schedule* next_ = nullptr;  // the step after the one that runs, where they overlap
  int64_t step_ = 0;                // counts the steps of the run
  double compute_cpu_seconds_ = 0;

  mutable std::mutex mutex_;
  std::string current_{kBetweenSteps};  // guarded by mutex_
};

}  // namespace trireme
