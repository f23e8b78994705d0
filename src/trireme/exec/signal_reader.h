// SignalReader: the signals that end or pause a run, read like bytes instead of being handled.
//
// While it lives, they are blocked in the thread that made it and in threads started by that one.
// Signals that were ignored before (nohup, a job in a script's background) stay ignored. SIGPIPE
// is among them so that a reader of our output that goes away does not end the run.
#pragma once

#include <optional>

#include <signal.h>
#include <sys/signalfd.h>

#include "trireme/base/check.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

class SignalReader {
 public:
  SignalReader() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGPIPE}) {
      struct sigaction current{};
      ::sigaction(number, nullptr, &current);
      if (current.sa_handler != SIG_IGN) ::sigaddset(&signals, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
    fd_ = FileDescriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    TRIREME_CHECK(fd_.is_open(), "signalfd failed: this process is out of file descriptors");
  }
  ~SignalReader() {
    // What has come since must not strike when it is unblocked.
    while (next().has_value()) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

}  // namespace trireme
