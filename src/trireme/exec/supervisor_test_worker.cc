// A rank, and a supervisor of such ranks, for supervisor_test.cc.
//
//   supervisor_test_worker supervise N [OPTION ...] MODE [RANK:MODE ...]     runs supervise()
//   supervisor_test_worker MODE [RANK:MODE ...]                              what it starts
//
// OPTIONs, in this order: --quiet, --program PATH, --real-times, --grace SECONDS.
//
// MODE is for all ranks but those that have one of their own; the modes are below.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/supervisor.h"

namespace trireme {
namespace {

int env_number(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? -1 : std::atoi(value);
}

[[noreturn]] void sleep_for_ever() {
  while (true) ::pause();
}

void say(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
}

Result<std::unique_ptr<ControlClient>> connect_client(int rank, const std::string& mode) {
  ClientOptions options;
  options.address = std::getenv("TRIREME_HUB");
  options.token = std::getenv("TRIREME_TOKEN");
  options.rank = rank;
  options.where = [rank] {
    return fmt::format("RG1 (gradients of micro-batch 1 from rank {})", rank + 1);
  };
  options.on_lost = [mode](const std::string&) {
    if (mode != "stubborn") ::_exit(1);
  };
  return ControlClient::connect(options);
}

// Nobody goes on before all are connected.
Status meet(ControlClient& client) {
  TRIREME_TRY(const int64_t arrived, client.add("arrived", 1));
  if (arrived == env_number("WORLD_SIZE")) TRIREME_TRY(client.set("all", {}));
  return client.wait({"all"}, std::chrono::seconds(20));
}

void publish_steps(ControlClient& client) {
  for (int step = 1; step <= 3; ++step) {
    client.publish(fmt::format(R"({{"event":"step","step":{},"steps":3,"loss":{},"items":1000,)"
                               R"("seconds":0.5}})",
                               step, 4.0 / step));
  }
}

int finish(ControlClient& client) { return client.finish().ok() ? 0 : 5; }

// Dies when rank 1, which says its process id before it stops, has stopped.
[[noreturn]] void kill_self_when_stopped(ControlClient& client) {
  const Result<StoreBytes> pid = client.get("stopping", std::chrono::seconds(20));
  if (!pid.ok()) ::_exit(5);
  const std::string path =
      fmt::format("/proc/{}/stat", std::string(pid.value().begin(), pid.value().end()));
  while (true) {
    std::ifstream file(path);
    std::string text;
    std::getline(file, text);
    if (text.find(") T ") != std::string::npos) ::raise(SIGKILL);
    ::usleep(1000);
  }
}

int after_meeting(std::unique_ptr<ControlClient> client, const std::string& mode) {
  if (mode == "finish") return finish(*client);
  if (mode == "train") {
    publish_steps(*client);
    return finish(*client);
  }
  if (mode == "kill") ::raise(SIGKILL);
  if (mode == "stop") {
    const std::string pid = std::to_string(::getpid());
    if (!client->set("stopping", StoreBytes(pid.begin(), pid.end())).ok()) return 5;
    ::raise(SIGSTOP);
  }
  if (mode == "exit3") ::_exit(3);
  if (mode == "kill_when_1_is_stopped") kill_self_when_stopped(*client);
  if (mode == "babble") {
    while (true) say(std::string(1000, 'x'));
  }
  if (mode == "chatter") {
    for (int64_t i = 0;; ++i) {
      client->publish(fmt::format(R"({{"event":"step","step":{}}})", i));
      if (!client->add("count", 1).ok()) sleep_for_ever();
    }
  }
  if (mode == "silent0") ::_exit(0);
  if (mode == "fail" || mode == "suffer") {
    const bool is_own = mode == "fail";
    const Status told = client->fail(is_own ? "the loss of step 3 is nan" : "a transfer failed",
                                     is_own ? FailureOrigin::kOwn : FailureOrigin::kUnknown);
    return told.ok() ? 1 : 5;
  }
  if (mode == "hang_up") client.reset();
  if (mode == "linger" || mode == "crash_late") {
    if (finish(*client) != 0) return 5;
    if (mode == "crash_late") ::raise(SIGABRT);
  }
  if (mode == "parent") {
    const pid_t child = ::fork();
    if (child == 0) sleep_for_ever();
    say(fmt::format("pid {}", child));
    return finish(*client);
  }
  sleep_for_ever();  // "wait", "stubborn", "linger", "hang_up"
}

int run_worker(const std::vector<std::string>& modes) {
  const int rank = env_number("RANK");
  std::string mode = modes[0];
  const std::string prefix = std::to_string(rank) + ":";
  for (const std::string& each : modes) {
    if (each.starts_with(prefix)) mode = each.substr(prefix.size());
  }
  if (mode == "exit4") return 4;
  if (mode == "stubborn") ::signal(SIGTERM, SIG_IGN);
  Result<std::unique_ptr<ControlClient>> client = connect_client(rank, mode);
  if (!client.ok()) {
    say(client.error().message);
    return 6;
  }
  say(fmt::format("pid {}", ::getpid()));
  if (mode == "environment") {
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                             "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MORE"}) {
      const char* value = std::getenv(name);
      say(fmt::format("{}={}", name, value == nullptr ? "" : value));
    }
    char byte = 0;
    if (::read(STDIN_FILENO, &byte, 1) == 0) say("stdin is empty");
    mode = "finish";
  }
  const Status met = meet(*client.value());
  if (!met.ok()) {
    say(met.error().message);
    return 7;
  }
  say("met");
  return after_meeting(std::move(client).value(), mode);
}

int run_supervisor(const char* self, std::vector<std::string> arguments) {
  SupervisorOptions options;
  options.worker_path = self;
  options.num_workers = std::atoi(arguments[0].c_str());
  options.threads_per_worker = 3;
  options.environment = {"MORE=yes"};
  options.exit_timeout = std::chrono::milliseconds(300);
  options.grace = std::chrono::milliseconds(300);
  options.watch.where_timeout = std::chrono::milliseconds(300);
  arguments.erase(arguments.begin());
  if (arguments[0] == "--quiet") {
    options.progress = ProgressOutput::kQuiet;
    arguments.erase(arguments.begin());
  }
  if (arguments[0] == "--program") {
    options.worker_path = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  if (arguments[0] == "--real-times") {  // what a user gets, instead of what keeps tests short
    options.grace = SupervisorOptions().grace;
    options.exit_timeout = SupervisorOptions().exit_timeout;
    options.watch.where_timeout = RunWatchOptions().where_timeout;
    arguments.erase(arguments.begin());
  }
  if (arguments[0] == "--grace") {
    options.grace = std::chrono::seconds(std::atoi(arguments[1].c_str()));
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  options.arguments = arguments;
  options.describe_rank = [](int32_t rank) {
    return fmt::format("rank {} (stage {}, replica {})", rank, rank % 2, rank / 2);
  };
  const Result<int> status = supervise(options);
  if (status.ok()) return status.value();
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 2;
}

}  // namespace
}  // namespace trireme

// What is thrown here ends a test with its message.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return 64;
  if (arguments[0] != "supervise") return trireme::run_worker(arguments);
  return trireme::run_supervisor(argv[0], {arguments.begin() + 1, arguments.end()});
}
