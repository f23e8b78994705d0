// WakeEvent: wakes a thread that sleeps in poll().
//
// Any thread calls notify(); the polling thread watches fd() for reading and calls clear() before
// it looks at what changed, so that no notification is lost.
#pragma once

#include <cstdint>

#include <sys/eventfd.h>

#include "trireme/base/check.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

class WakeEvent {
 public:
  WakeEvent() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TRIREME_CHECK(event_.is_open(), "eventfd failed: this process is out of file descriptors");
  }
  [[nodiscard]] int fd() const { return event_.get(); }
  void notify() {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the thread is awake already.
    [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  }
  void clear() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
  }

 private:
  FileDescriptor event_;
};

}  // namespace trireme
