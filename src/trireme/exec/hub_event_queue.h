// HubEventQueue: carries the hub's events from its thread to the thread of its owner.
//
// The owner polls fd() for reading and then takes all events, in the order in which they came.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

#include "trireme/exec/control_hub.h"
#include "trireme/exec/wake_event.h"

namespace trireme {

class HubEventQueue {
 public:
  void push(HubEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    wake_.notify();
  }
  [[nodiscard]] int fd() const { return wake_.fd(); }
  [[nodiscard]] std::deque<HubEvent> take_all() {
    wake_.clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  WakeEvent wake_;
  std::mutex mutex_;
  std::deque<HubEvent> events_;  // guarded by mutex_
};

}  // namespace trireme
