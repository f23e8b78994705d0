#include "trireme/exec/output_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "trireme/exec/stream_socket.h"

namespace trireme {

void OutputQueue::add(int fd, std::string text) {
  if (text.empty()) return;
  num_bytes_ += text.size();
  chunks_.push_back({.fd = fd, .text = std::move(text)});
}

void OutputQueue::write_some() {
  Chunk& chunk = chunks_.front();
  // What poll() promises: a pipe takes 4096 bytes without blocking, a terminal 256.
  const size_t most = ::isatty(chunk.fd) == 1 ? 256 : 4096;
  const size_t left = chunk.text.size() - chunk.written;
  const ssize_t taken = ::write(chunk.fd, chunk.text.data() + chunk.written, std::min(left, most));
  if (taken < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // A reader that is gone gets nothing more; that must not end the run.
  const size_t done = taken < 0 ? left : static_cast<size_t>(taken);
  chunk.written += done;
  num_bytes_ -= done;
  if (chunk.written == chunk.text.size()) chunks_.pop_front();
}

void OutputQueue::flush_for(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (fd() >= 0) {
    const auto now = std::chrono::steady_clock::now();
    pollfd watched{.fd = fd(), .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&watched, 1, milliseconds_until(deadline, now));
    if (ready > 0) write_some();
    if (ready == 0 && now >= deadline) return;
  }
}

}  // namespace trireme
