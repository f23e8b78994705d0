// Runs supervise() as its users do: as a process that starts processes (supervisor_test_worker).
#include "trireme/exec/supervisor.h"

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/file_descriptor.h"
#include "trireme/exec/stream_socket.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::seconds kDeadline(20);
constexpr const char* kRank0 = "rank 0 (stage 0, replica 0) ";
constexpr const char* kWasWaiting = "was in RG1 (gradients of micro-batch 1 from rank ";

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

  // Reads until so many workers have said their process ids.
  std::vector<pid_t> read_pids(size_t count) {
    const Clock::time_point deadline = Clock::now() + kDeadline;
    while (pids().size() < count && Clock::now() < deadline && read_some(deadline)) {
    }
    EXPECT_EQ(pids().size(), count) << err_text_;
    return pids();
  }
  [[nodiscard]] std::vector<pid_t> pids() const {
    std::vector<pid_t> found;
    const std::string mark = "] pid ";
    for (size_t at = err_text_.find(mark); at != std::string::npos;
         at = err_text_.find(mark, at + 1)) {
      if (err_text_.find('\n', at) == std::string::npos) break;
      found.push_back(std::stoi(err_text_.substr(at + mark.size())));
    }
    return found;
  }

  // Reads to the end of its output. Its exit status, or 1000 + signal.
  int wait() {
    const Clock::time_point deadline = Clock::now() + kDeadline;
    while (read_some(deadline)) {
    }
    if (Clock::now() >= deadline) end(SIGKILL);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  void end(int number) {
    ::kill(pid_, number);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  // False when both ends are closed, or at the deadline.
  bool read_some(Clock::time_point deadline) {
    std::array<pollfd, 2> watched = {{{.fd = out_.get(), .events = POLLIN, .revents = 0},
                                      {.fd = err_.get(), .events = POLLIN, .revents = 0}}};
    if (!out_.is_open() && !err_.is_open()) return false;
    if (::poll(watched.data(), 2, milliseconds_until(deadline, Clock::now())) <= 0) return false;
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

void expect_all_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_EQ(::kill(pid, 0), -1) << pid << " is alive";
}

struct FailureCase {
  const char* arguments;
  const char* cause;      // the first of the last lines
  const char* survivors;  // the rest of them
};

class Failures : public testing::TestWithParam<FailureCase> {};

TEST_P(Failures, EndAllRanksAndNameTheFirstCause) {
  RunningSupervisor run(GetParam().arguments);
  EXPECT_EQ(run.wait(), 1);
  EXPECT_THAT(run.err(),
              EndsWith(std::string("\n") + GetParam().cause + "\n" + GetParam().survivors));
  expect_all_gone(run.pids());
}

INSTANTIATE_TEST_SUITE_P(
    Supervisor, Failures,
    testing::Values(
        FailureCase{"3 wait 2:kill",
                    "rank 2 (stage 0, replica 1) died: killed by signal 9 (SIGKILL)",
                    "rank 0 (stage 0, replica 0) was in RG1 (gradients of micro-batch 1 from rank "
                    "1)\n"
                    "rank 1 (stage 1, replica 0) was in RG1 (gradients of micro-batch 1 from rank "
                    "2)\n"},
        FailureCase{"2 wait 1:fail",
                    "rank 1 (stage 1, replica 0) failed: the loss of step 3 is nan",
                    "rank 0 (stage 0, replica 0) was in RG1 (gradients of micro-batch 1 from rank "
                    "1)\n"}));

TEST(Supervisor, ShowsTheProgressOfRankZeroAndReturnsZero) {
  RunningSupervisor run("3 train");
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(),
            "step 1/3  loss 4.000  items/s 2k  eta 0:01\nstep 3/3  loss 1.333  items/s 2k\n");
  expect_all_gone(run.pids());
}

}  // namespace
}  // namespace trireme
