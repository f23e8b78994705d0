// DirectLoop: the tickets of a rank, and who drives its DirectEngine.
//
// The thread of the rank drives while it waits and as it posts, so that the common case costs no
// change of threads, which is processor time that the rank lacks where both share a core. The
// loop's own thread drives what cannot be left while the rank computes: what is longer than the
// streams take at once, messages that wait for their grants, all-reduces. Whoever drives has the
// turn:
//
//   rank     wait ~~~~ | post | wait ~~~~~~ | computes ...................... | wait ~~~~
//   loop     asleep                              | drives, sleeps until an event   | asleep
//                                           <--->
//                                         kHandBack: the rank is likely to wait again at once
//
// Both sleep without the turn. The rank sleeps in the engine's epoll; the loop's thread in one of
// its own that watches the engine's where it is armed: not while the rank waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"
#include "trireme/exec/transport.h"
#include "trireme/exec/wake_event.h"
#include "trireme/transport/direct_engine.h"

namespace trireme {

class DirectLoop {
 public:
  // As those of DirectEngine. A wait in which nothing of its operation moves for `timeout` is a
  // failure.
  DirectLoop(int32_t rank, std::vector<DirectPeer> peers, WakeEvent wake,
             std::chrono::milliseconds timeout, TransferListener* listener);
  ~DirectLoop();
  DirectLoop(const DirectLoop&) = delete;
  DirectLoop& operator=(const DirectLoop&) = delete;

  // One thread posts and waits.
  Ticket post(const DirectOperation& operation);
  Status wait(Ticket ticket);
  // From any thread, but not from a TransferListener.
  void hold_bulk(int32_t peer, Hold hold);
  [[nodiscard]] PeerThroughput throughput(int32_t peer);
  [[nodiscard]] std::optional<MeasuredLink> take_measured(int32_t peer);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Driver : uint8_t { kRank, kLoop };
  enum class Sleep : uint8_t {
    kAwake,
    kBriefly,  // until the rank has not waited for kHandBack, or calls
    kDeeply,   // until an event, or until it is called
  };

  // The loop's thread.
  void run();
  // Sleeps until there may be something to drive; false: the loop ends.
  bool sleep();
  void drive_as_loop();

  // Drives the engine until nothing can be done or the driver must stop. `awaited`: by the rank,
  // which drives; null: the loop's thread does. REQUIRES: the turn.
  void drive(const DirectOperation* awaited);
  [[nodiscard]] bool must_stop(Driver driver);
  // Looks for a moment at the memory that peers share; whether they have moved something.
  bool look_around();
  // REQUIRES: the turn.
  void start_posted();
  void publish_ended(Driver driver);
  // Moves what of `ticket` can be moved; whether it has ended.
  bool drive_until_over(Ticket ticket, const DirectOperation& awaited);
  // Moves what is urgent and cannot be left while the rank computes: on a core that both share the
  // loop's thread may have to wait for milliseconds. Whether nothing is left to it. REQUIRES: the
  // turn.
  bool settle();
  // The wait is over, and the rank goes on to compute. REQUIRES: the turn.
  void leave();
  void give_up(Ticket ticket);
  // Has what is there driven at once.
  void call_driver();
  // All REQUIRE mutex_.
  void wake_loop();
  void arm(bool is_armed);
  [[nodiscard]] bool is_over(Ticket ticket) const;
  Status take_outcome(Ticket ticket);

  const std::chrono::milliseconds timeout_;
  std::mutex turn_;  // guards engine_; never taken with mutex_ held
  DirectEngine engine_;

  std::mutex mutex_;  // guards everything below but the thread
  std::condition_variable brief_;
  WakeEvent call_;
  FileDescriptor epoll_;  // call_, and the engine's where it is armed
  std::vector<DirectPosted> posted_;
  std::map<int32_t, DirectOperation> open_;       // by ticket: neither done nor failed
  std::map<int32_t, std::optional<Error>> done_;  // by ticket: not yet waited for
  std::optional<Error> failure_;
  std::optional<Ticket> awaited_;
  Clock::time_point last_wait_;  // when a wait last began or ended
  int32_t next_ticket_ = 0;
  Sleep sleep_ = Sleep::kAwake;  // of the loop's thread
  bool is_armed_ = false;
  bool has_news_ = false;   // for the loop's thread, unless the rank waits again at once
  bool is_called_ = false;  // the loop's thread is to drive now
  bool must_end_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace trireme
