#include "trireme/exec/worker_process.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr int kKillTimeoutMs = 500;

struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error{fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  }
  return Pipe{.reading = FileDescriptor(ends[0]), .writing = FileDescriptor(ends[1])};
}

// By its number: glibc 2.36 declares the function without C linkage.
FileDescriptor open_pidfd(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

std::vector<std::string> merge_environment(const std::vector<std::string>& additions) {
  std::vector<std::string> merged = additions;
  const auto is_replaced = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    for (const std::string& addition : additions) {
      if (std::string_view(addition).starts_with(name)) return true;
    }
    return false;
  };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!is_replaced(*entry)) merged.emplace_back(*entry);
  }
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct ChildSetup {
  const char* path;
  char* const* arguments;
  char* const* environment;
  pid_t parent;
  int output;
  int failure;  // takes the errno of an exec that fails
};

// Between fork and exec other threads' locks are held for ever: system calls only.
[[noreturn]] void become_worker(const ChildSetup& setup) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above took effect.
  if (::getppid() != setup.parent) ::_exit(127);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int empty = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (empty >= 0) ::dup2(empty, STDIN_FILENO);
  ::dup2(setup.output, STDOUT_FILENO);
  ::dup2(setup.output, STDERR_FILENO);
  ::execve(setup.path, setup.arguments, setup.environment);
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(setup.failure, &reason, sizeof reason);
  ::_exit(127);
}

}  // namespace

Result<WorkerProcess> WorkerProcess::start(const WorkerCommand& command) {
  TRIREME_TRY(Pipe output, make_pipe());
  TRIREME_TRY(Pipe failure, make_pipe());
  std::vector<std::string> arguments = {command.path};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = merge_environment(command.environment);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const ChildSetup setup{.path = command.path.c_str(),
                         .arguments = argument_pointers.data(),
                         .environment = environment_pointers.data(),
                         .parent = ::getpid(),
                         .output = output.writing.get(),
                         .failure = failure.writing.get()};
  const pid_t pid = ::fork();
  if (pid < 0) return Error{fmt::format("cannot start a process: {}", std::strerror(errno))};
  if (pid == 0) become_worker(setup);
  ::setpgid(pid, pid);  // here as well: a signal to the group must find it at once
  output.writing.reset();
  failure.writing.reset();
  ::fcntl(output.reading.get(), F_SETFL, O_NONBLOCK);
  WorkerProcess worker(pid, open_pidfd(pid), std::move(output.reading));

  int reason = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure.reading.get(), &reason, sizeof reason);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof reason)) {
    return Error{fmt::format("cannot start {}: {}", command.path, std::strerror(reason))};
  }
  if (!worker.end_.is_open()) return Error{"cannot watch a process: pidfd_open needs Linux 5.3"};
  return worker;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      end_(std::move(other.end_)),
      output_(std::move(other.output_)) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  // Bounded: a process that is stuck in the kernel must not hold its parent as well.
  pollfd watched{.fd = end_.get(), .events = POLLIN, .revents = 0};
  ::poll(&watched, 1, kKillTimeoutMs);
  int status = 0;
  ::waitpid(pid_, &status, WNOHANG);
}

void WorkerProcess::signal(int number) const {
  if (pid_ <= 0) return;
  ::kill(-pid_, number);
  ::kill(pid_, number);
}

std::optional<int> WorkerProcess::try_reap() {
  if (pid_ <= 0) return std::nullopt;
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_) {
    return std::nullopt;
  }
  // While it is a zombie its number cannot be anyone else's.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  end_.reset();
  return status;
}

}  // namespace trireme
