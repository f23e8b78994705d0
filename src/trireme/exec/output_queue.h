// OutputQueue: writes to terminals, pipes and files without ever blocking on a reader that has
// stopped reading.
//
// Texts go out in the order in which they came, whichever descriptor they are for. The owner polls
// fd() for writing while there is one, and calls write_some() when poll says so. While is_full(),
// the owner should not make more.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>

namespace trireme {

class OutputQueue {
 public:
  void add(int fd, std::string text);
  // The descriptor that takes the next bytes; -1 when all is written.
  [[nodiscard]] int fd() const { return chunks_.empty() ? -1 : chunks_.front().fd; }
  [[nodiscard]] bool is_full() const { return num_bytes_ > (size_t{1} << 18); }
  // REQUIRES: poll() found fd() ready.
  void write_some();
  // Writes what is left, for at most this long.
  void flush_for(std::chrono::milliseconds timeout);

 private:
  struct Chunk {
    int fd = -1;
    std::string text;
    size_t written = 0;
  };
  std::deque<Chunk> chunks_;
  size_t num_bytes_ = 0;
};

}  // namespace trireme
