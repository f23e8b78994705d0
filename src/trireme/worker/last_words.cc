#include "trireme/worker/last_words.h"

#include <thread>
#include <utility>

#include <signal.h>
#include <unistd.h>

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kOutsideOfARun(1000);
// More than a hub takes to hear all ranks after a failure.
constexpr std::chrono::milliseconds kInARun(4000);

sigset_t sigterm_alone() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

LastWords::LastWords() {
  const sigset_t signals = sigterm_alone();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([this] { run(); }).detach();
}

void LastWords::run() {
  const sigset_t signals = sigterm_alone();
  int number = 0;
  ::sigwait(&signals, &number);
  std::function<void()> farewell;
  {
    const std::lock_guard lock(mutex_);
    has_come_ = true;
    farewell = farewell_;
    told_.notify_all();
  }
  if (farewell) farewell();
  std::this_thread::sleep_for(farewell ? kInARun : kOutsideOfARun);
  _exit(128 + SIGTERM);  // unflushed: whoever holds a stream may be stuck
}

void LastWords::set_farewell(std::function<void()> farewell) {
  const std::lock_guard lock(mutex_);
  farewell_ = std::move(farewell);
}

bool LastWords::wait_for_sigterm(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return told_.wait_for(lock, longest, [this] { return has_come_; });
}

}  // namespace trireme
