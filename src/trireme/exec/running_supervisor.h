// The processes of supervisor_test.cc: a supervisor that was started as its users start it, and
// what /proc says of its ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/exec/file_descriptor.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {

inline constexpr std::chrono::seconds kDeadline(20);

// The letter of /proc: 'R' and 'S' while it lives, 'T' stopped, 'Z' dead but not waited for;
// ' ' when there is no such process.
inline char state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t end_of_name = text.rfind(") ");
  return end_of_name == std::string::npos ? ' ' : text[end_of_name + 2];
}

inline bool is_alive(pid_t pid) { return state_of(pid) != ' ' && state_of(pid) != 'Z'; }

inline void expect_all_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_EQ(state_of(pid), ' ') << pid;
}

inline bool wait_for_state(pid_t pid, char state) {
  const std::chrono::steady_clock::time_point deadline =
      std::chrono::steady_clock::now() + kDeadline;
  while (state_of(pid) != state && std::chrono::steady_clock::now() < deadline)
    ::poll(nullptr, 0, 1);
  return state_of(pid) == state;
}

// waitpid with a deadline.
inline pid_t wait_until(pid_t pid, std::chrono::steady_clock::time_point deadline, int& status) {
  while (std::chrono::steady_clock::now() < deadline) {
    const pid_t found = ::waitpid(pid, &status, WNOHANG);
    if (found != 0) return found;
    ::poll(nullptr, 0, 1);
  }
  return 0;
}

enum class Output { kPipe, kTerminal };

// A supervisor in a process of its own, and what it has written so far.
class RunningSupervisor {
 public:
  explicit RunningSupervisor(const std::string& arguments, Output output = Output::kPipe) {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    EXPECT_EQ(::pipe2(err.data(), O_CLOEXEC), 0);
    if (output == Output::kPipe) {
      EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
    } else {
      out[0] = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      EXPECT_EQ(::grantpt(out[0]) | ::unlockpt(out[0]), 0);
      out[1] = ::open(::ptsname(out[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    out_ = FileDescriptor(out[0]);
    err_ = FileDescriptor(err[0]);
    const FileDescriptor out_end(out[1]);
    const FileDescriptor err_end(err[1]);

    std::string path = TRIREME_BIN_DIR "/supervisor_test_worker";
    std::vector<std::string> texts = {path, "supervise"};
    for (size_t begin = 0; begin < arguments.size();) {
      const size_t end = std::min(arguments.find(' ', begin), arguments.size());
      texts.push_back(arguments.substr(begin, end - begin));
      begin = end + 1;
    }
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out_end.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err_end.get(), STDERR_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, path.c_str(), &actions, nullptr, pointers.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~RunningSupervisor() {
    if (pid_ > 0) end(SIGKILL);
  }
  RunningSupervisor(const RunningSupervisor&) = delete;
  RunningSupervisor& operator=(const RunningSupervisor&) = delete;

  [[nodiscard]] const std::string& out() const { return out_text_; }
  [[nodiscard]] const std::string& err() const { return err_text_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Reads until so many process ids have been said, and so many workers have met the others.
  std::vector<pid_t> read_pids(size_t count) { return read_pids(count, count); }
  std::vector<pid_t> read_pids(size_t count, size_t num_met) {
    const std::chrono::steady_clock::time_point deadline =
        std::chrono::steady_clock::now() + kDeadline;
    const auto is_enough = [&] {
      size_t found = 0;
      for (size_t at = err_text_.find("] met\n"); at != std::string::npos;
           at = err_text_.find("] met\n", at + 1)) {
        ++found;
      }
      return pids().size() >= count && found >= num_met;
    };
    while (!is_enough() && std::chrono::steady_clock::now() < deadline && read_some(deadline)) {
    }
    EXPECT_EQ(pids().size(), count) << err_text_;
    return pids();
  }
  [[nodiscard]] std::vector<pid_t> pids() const { return numbers_after("] pid "); }
  [[nodiscard]] pid_t pid_of_rank(size_t rank) const {
    return numbers_after(fmt::format("[rank {}] pid ", rank)).at(0);
  }
  [[nodiscard]] std::vector<pid_t> numbers_after(const std::string& mark) const {
    std::vector<pid_t> found;
    for (size_t at = err_text_.find(mark); at != std::string::npos;
         at = err_text_.find(mark, at + 1)) {
      if (err_text_.find('\n', at) == std::string::npos) break;
      found.push_back(std::stoi(err_text_.substr(at + mark.size())));
    }
    return found;
  }

  // Reads to the end of its output. Its exit status, or 1000 + signal.
  int wait() {
    const std::chrono::steady_clock::time_point deadline =
        std::chrono::steady_clock::now() + kDeadline;
    while (read_some(deadline)) {
    }
    return wait_without_reading();
  }
  int wait_without_reading() {
    int status = 0;
    if (wait_until(pid_, std::chrono::steady_clock::now() + kDeadline, status) != pid_) {
      ADD_FAILURE() << "the supervisor is still there";
      return -1;
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  void close_outputs() {
    out_.reset();
    err_.reset();
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Whether so many bytes wait to be read from its standard error.
  [[nodiscard]] bool wait_for_unread(int num_bytes) const {
    const std::chrono::steady_clock::time_point deadline =
        std::chrono::steady_clock::now() + kDeadline;
    int unread = 0;
    while (unread < num_bytes && std::chrono::steady_clock::now() < deadline) {
      ::ioctl(err_.get(), FIONREAD, &unread);
      ::poll(nullptr, 0, 1);
    }
    return unread >= num_bytes;
  }
  void end(int number) {
    ::kill(pid_, number);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  // False when both ends are closed, or at the deadline.
  bool read_some(std::chrono::steady_clock::time_point deadline) {
    std::array<pollfd, 2> watched = {{{.fd = out_.get(), .events = POLLIN, .revents = 0},
                                      {.fd = err_.get(), .events = POLLIN, .revents = 0}}};
    if (!out_.is_open() && !err_.is_open()) return false;
    if (::poll(watched.data(), 2, milliseconds_until(deadline, std::chrono::steady_clock::now())) <=
        0)
      return false;
    if (watched[0].revents != 0) read_from(out_, out_text_);
    if (watched[1].revents != 0) read_from(err_, err_text_);
    return true;
  }
  static void read_from(FileDescriptor& from, std::string& text) {
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
    if (got <= 0) return from.reset();  // a terminal ends with EIO
    text.append(bytes.data(), static_cast<size_t>(got));
  }

  pid_t pid_ = -1;
  FileDescriptor out_;
  FileDescriptor err_;
  std::string out_text_;
  std::string err_text_;
};

}  // namespace trireme
