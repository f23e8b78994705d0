// ControlClient: a rank's end of the control channel (control_protocol.h).
//
// One thread of its own sends heartbeats, answers the hub, and moves the frames of all other
// threads; every method below may be called from any thread. A method that asks waits for its
// answer, at most for its time-out. Once another rank is lost or the connection has ended, all
// waiting and later requests fail at once with that reason, so nobody waits for a dead rank's key.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_protocol.h"
#include "trireme/exec/frame_channel.h"
#include "trireme/exec/wake_event.h"

namespace trireme {

using StoreBytes = std::vector<uint8_t>;

struct ClientOptions {
  std::string address;  // "host:port" of the hub
  std::string token;
  int32_t rank = -1;
  std::string host;                         // of this rank, for messages; may be empty
  std::string hub_name = "the supervisor";  // who ends when the connection ends, for messages
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(30);
  // While connecting (control_handshake.h):
  std::function<void(const std::string&)> on_waiting;
  bool name_may_come = false;
  std::chrono::milliseconds heartbeat_period = std::chrono::seconds(1);
  std::chrono::milliseconds silence_timeout = std::chrono::seconds(30);  // of the hub
  std::chrono::milliseconds request_timeout = std::chrono::seconds(30);  // where none is given
  // What this rank is doing: "RG1 (gradients of micro-batch 1 from rank 1)". Called on the
  // client's thread, and by fail(); must not block, nor call the client.
  std::function<std::string()> where;
  // Called once on the client's thread, after `where` has been answered, when another rank is lost
  // or the hub is gone, unless this rank has finished. May end the process; must not call or
  // destroy the client. The argument is a sentence: "rank 2 (stage 0, replica 1) died: ...".
  std::function<void(const std::string&)> on_lost;
  // Called instead of on_lost, when there is one, for the end of the hub: no other rank will hear
  // of this one.
  std::function<void(const std::string&)> on_hub_lost;
};

class ControlClient {
 public:
  // Tries again until connect_timeout: the hub may not listen yet.
  [[nodiscard]] static Result<std::unique_ptr<ControlClient>> connect(ClientOptions options);
  // Ends the connection. Without finish() or fail() before, the hub takes this rank for dead.
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // The store, as c10d::Store means it (control_store.h).
  Status set(const std::string& key, const StoreBytes& value);
  Result<StoreBytes> get(const std::string& key, std::chrono::milliseconds timeout);
  Result<int64_t> add(const std::string& key, int64_t delta);
  Result<bool> check(const std::vector<std::string>& keys);
  Status wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  Result<bool> delete_key(const std::string& key);
  Result<StoreBytes> compare_set(const std::string& key, const StoreBytes& expected,
                                 const StoreBytes& desired);
  Result<int64_t> num_keys();

  // Sends a line to the hub's owner. Does not wait; lines arrive in order, and before finish().
  void publish(std::string text);
  // Tells why this rank ends the run. When it returns ok the hub knows, so whatever other ranks
  // suffer from the end of this one is not taken for the cause, and what this rank was doing is
  // in the report whoever the cause is. Works after a loss, too.
  Status fail(const std::string& message, FailureOrigin origin = FailureOrigin::kUnknown);
  // This rank is done: its process may exit, and on_lost is not called any more.
  Status finish();

  // The address of this machine by which it reached the hub, and others can reach it: "10.0.0.2".
  [[nodiscard]] const std::string& local_host() const { return local_host_; }

  // Why the run is over, once it is: what on_lost was told.
  [[nodiscard]] std::optional<std::string> lost_reason() const;

 private:
  struct Pending {
    bool ends_the_run = false;  // finish(): once answered, no loss concerns this rank
    std::optional<ControlMessage> reply;
  };
  enum class AfterLoss { kRefuse, kSend };

  ControlClient(ClientOptions options, FrameChannel channel);

  [[nodiscard]] std::string current_work() const;
  [[nodiscard]] Result<ControlMessage> request(ControlMessage message,
                                               std::chrono::milliseconds timeout,
                                               const std::string& what,
                                               AfterLoss after_loss = AfterLoss::kRefuse);
  void run(const std::stop_token& stop);
  [[nodiscard]] ChannelState exchange_frames();
  [[nodiscard]] ChannelState take_frames();
  void handle(const ControlMessage& message);
  void lose(const std::string& reason, const std::function<void(const std::string&)>& tell);
  void disconnect(const std::string& reason);

  ClientOptions options_;
  std::string local_host_;
  FrameChannel channel_;                              // of the client's thread alone, once it runs
  std::chrono::steady_clock::time_point last_heard_;  // of the client's thread
  WakeEvent wake_;

  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::vector<ControlMessage> outgoing_;  // guarded by mutex_
  std::map<uint32_t, Pending> pending_;   // guarded by mutex_
  uint32_t next_request_ = 1;             // guarded by mutex_
  std::optional<std::string> lost_;       // guarded by mutex_
  bool is_connected_ = true;              // guarded by mutex_
  bool has_finished_ = false;             // guarded by mutex_
  std::jthread thread_;                   // last: it uses the members above
};

}  // namespace trireme
