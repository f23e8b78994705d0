// LastWords: time for a rank to say why the run ends.
//
// A launcher ends all ranks as soon as one has ended, and would cut off the words that say why. So
// SIGTERM does not end a rank at once. Outside a run it has a second; in a run it tells the hub
// that it was stopped and lives until the hub has decided, which ends the process, or 4 s.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace trireme {

class LastWords {
 public:
  // Takes SIGTERM over for this process. REQUIRES: no other thread runs yet, and this object lives
  // as long as the process does.
  LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  // What tells the run that this rank is stopped: called once on a thread of its own.
  void set_farewell(std::function<void()> farewell);
  // Waits for SIGTERM. False: it has not come within this time.
  [[nodiscard]] bool wait_for_sigterm(std::chrono::milliseconds longest);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable told_;
  bool has_come_ = false;           // guarded by mutex_
  std::function<void()> farewell_;  // guarded by mutex_
};

}  // namespace trireme
