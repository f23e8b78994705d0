#include "trireme/worker/load_processes.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

extern char** environ;  // NOLINT: of the C library

namespace trireme {
namespace {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

Result<LoadProcesses> LoadProcesses::start(int32_t count) {
  LoadProcesses load;
  std::vector<std::string> words = own_arguments();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::string variable;
  std::vector<char*> variables = {nullptr};  // `variable`
  for (char** each = environ; *each != nullptr; ++each) variables.push_back(*each);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  Status status;
  for (int32_t i = 0; i < count && status.ok(); ++i) {
    pid_t pid = 0;
    variable = fmt::format("{}={}", kLoadVariable, i + 1);
    variables[0] = variable.data();
    const int code =
        ::posix_spawn(&pid, "/proc/self/exe", &files, nullptr, arguments.data(), variables.data());
    if (code == 0) {
      load.pids_.push_back(pid);
    } else {
      status = Error{fmt::format("cannot start a process: {}", std::strerror(code))};
    }
  }
  posix_spawn_file_actions_destroy(&files);
  if (!status.ok()) return status.error();
  return load;
}

LoadProcesses::~LoadProcesses() {
  for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
  for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
}

void LoadProcesses::follow_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == 1) ::_exit(0);  // it has ended already
}

}  // namespace trireme
