// DirectLoop: the tickets of a rank, and who drives its DirectEngine.
//
// The thread of the rank drives while it waits, so that the common case costs no change of threads;
// the loop's own thread drives while the rank computes. Whoever drives has the turn:
//
//   rank     wait ~~~~ | post | wait ~~~~~~ | computes ...................... | wait ~~~~
//   loop     parked                              | drives, sleeps in epoll ...     | parked
//                                           <--->
//                                         kHandBack: the rank is likely to wait again at once
//
// Both sleep in epoll_wait() without the turn. The kernel tells an event to the one that went to
// sleep last; if that is not the rank, it moves what there is, wakes the rank and parks.
// A post that only queues leaves the work to the next driver; a send tries the turn and takes its
// first frame along, so that what is short has left before the rank goes on to compute.
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
#include "trireme/exec/transport.h"
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

 private:
  using Clock = std::chrono::steady_clock;
  enum class Driver : uint8_t { kRank, kLoop };
  enum class Drive : uint8_t {
    kAllMoved,  // nothing can be done now
    kStopped,   // there may be more
  };

  // The loop's thread.
  void run();
  // Until the rank has not waited for kHandBack or calls; false: the loop ends.
  bool park();
  // Until the rank waits.
  void watch();

  // Drives the engine until nothing can be done or the driver must stop. REQUIRES: the turn.
  Drive drive(Driver driver);
  [[nodiscard]] bool must_stop(Driver driver);
  // Looks for a moment at the memory that peers share; whether they have moved something.
  bool look_around();
  // REQUIRES: the turn.
  void start_posted();
  void publish_ended(Driver driver);
  // Moves what of `ticket` can be moved; whether it has ended.
  bool drive_until_over(Ticket ticket);
  void give_up(Ticket ticket);
  void call_driver();
  // All REQUIRE mutex_.
  [[nodiscard]] bool is_over(Ticket ticket) const;
  [[nodiscard]] bool is_hot(Clock::time_point now) const;
  Status take_outcome(Ticket ticket);

  const std::chrono::milliseconds timeout_;
  std::mutex turn_;  // guards engine_; never taken with mutex_ held
  DirectEngine engine_;

  std::mutex mutex_;  // guards everything below but the thread
  std::condition_variable parked_;
  std::vector<DirectPosted> posted_;
  std::map<int32_t, DirectOperation> open_;       // by ticket: neither done nor failed
  std::map<int32_t, std::optional<Error>> done_;  // by ticket: not yet waited for
  std::optional<Error> failure_;
  std::optional<Ticket> awaited_;
  Clock::time_point last_wait_;  // when a wait last began or ended
  int32_t next_ticket_ = 0;
  bool is_parked_ = false;    // the loop's thread watches nothing
  bool sleeps_long_ = false;  // and looks for nothing but a call
  bool is_called_ = false;
  bool must_end_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace trireme
