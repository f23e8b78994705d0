// `trireme-worker`: one rank of a run, or all of them as threads. Takes the arguments of
// `trireme train` or `trireme eval`; its place comes from the environment.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/last_sentence.h"
#include "trireme/cli/launchers.h"
#include "trireme/cli/open_files.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/request.h"
#include "trireme/cli/result_text.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/loopback_transport.h"
#include "trireme/exec/network_interfaces.h"
#include "trireme/exec/progress.h"
#include "trireme/exec/run_failure.h"
#include "trireme/torch/counting_allocator.h"
#include "trireme/torch/gloo_transport.h"
#include "trireme/torch/vector_math.h"
#include "trireme/transport/direct_transport.h"
#include "trireme/worker/agreement.h"
#include "trireme/worker/allocator.h"
#include "trireme/worker/last_words.h"
#include "trireme/worker/load_processes.h"
#include "trireme/worker/pinning.h"
#include "trireme/worker/probe.h"
#include "trireme/worker/profile.h"
#include "trireme/worker/rank_loop.h"
#include "trireme/worker/rehearse.h"
#include "trireme/worker/rendezvous.h"

namespace trireme {
namespace {

// Leaving through main costs 100 ms of static destructors in libtorch.
[[noreturn]] void leave(int status) {
  std::fflush(nullptr);
  _exit(status);
}

// What the ranks of this process are doing, for the hub. The executors come and go.
class Watch {
 public:
  void set_executor(size_t slot, const Executor* executor) {
    const std::lock_guard lock(mutex_);
    at(slot).executor = executor;
  }
  void set_phase(size_t slot, std::string phase) {
    const std::lock_guard lock(mutex_);
    at(slot).phase = std::move(phase);
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const Slot& slot : slots_) {
      std::string action = slot.executor == nullptr ? "" : slot.executor->current_action();
      if (action.empty() || action == kBetweenSteps) action = slot.phase;
      text += (text.empty() ? "" : "; ") + action;
    }
    return text.empty() ? "its start" : text;
  }

 private:
  struct Slot {
    const Executor* executor = nullptr;
    std::string phase = "its start";
  };
  Slot& at(size_t slot) {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    return slots_[slot];
  }

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;  // guarded by mutex_
};

// The voice of a run that something other than `trireme train` started: it lives in rank 0, hears
// the hub, and says what the supervisor would say.
class RunVoice {
 public:
  explicit RunVoice(const RunSetup& setup)
      : setup_(setup),
        progress_(setup.request.is_quiet ? ProgressStyle::kQuiet : ProgressStyle::kLines, 0) {}

  // On the hub's thread. Ends the process when the run has failed: the others know by then.
  void hear(const HubEvent& event) {
    if (const auto* line = std::get_if<PublishedLine>(&event)) {
      show(*line);
    } else if (const auto* failure = std::get_if<RunFailure>(&event)) {
      const auto describe = [this](int32_t rank) { return setup_.describe_rank(rank); };
      fmt::print(stderr, "{}\n", fmt::join(describe_failure(*failure, describe), "\n"));
      leave(1);
    } else {
      is_over_.count_down();
    }
  }
  // Until all ranks have finished. The hub must live that long.
  void wait_for_the_end() const { is_over_.wait(); }

 private:
  void show(const PublishedLine& line) {
    if (line.rank != 0) return;
    fmt::print(setup_.request.has_result() ? stderr : stdout, "{}",
               progress_.show(line.text, std::chrono::steady_clock::now()));
    fmt::print("{}", result_text(setup_.request, line.text));
    std::fflush(stdout);
  }

  const RunSetup& setup_;
  Progress progress_;
  std::latch is_over_{1};
};

const char* variable(const char* name) { return std::getenv(name); }

void warn(const std::string& line) { fmt::print(stderr, "{}\n", line); }

Result<std::unique_ptr<Transport>> make_transport(const RunSetup& setup,
                                                  const RankEnvironment& environment,
                                                  const std::string& host, ControlClient& client) {
  const RunRequest& request = setup.request;
  if (request.transport_kind() == TransportKind::kGloo) {
    return make_gloo_transport(
        {.rank = environment.rank, .num_ranks = environment.num_processes, .host = host}, client);
  }
  const DirectOptions options{
      .rank = environment.rank,
      .num_ranks = environment.num_processes,
      .host = host,
      .describe_rank = [&setup](int32_t rank) { return setup.describe_rank(rank); },
      .connect_timeout = std::chrono::seconds(request.rendezvous_timeout_s),
      .shares_memory = request.shares_memory};
  TRIREME_TRY(std::unique_ptr<DirectTransport> transport, make_direct_transport(options, client));
  return std::unique_ptr<Transport>(std::move(transport));
}

RankOutcome run_any(const RunSetup& setup, const RankContext& context) {
  if (setup.request.probe.has_value()) return probe_rank(setup, context);
  return setup.rehearsal.has_value() ? rehearse_rank(setup, context) : run_rank(setup, context);
}

// The command of `trireme` that a supervisor is.
const char* supervisor_of(const RunRequest& request) {
  if (request.probe.has_value()) return "trireme probe";
  if (request.rehearsal.has_value()) return "trireme rehearse";
  return request.is_training ? "trireme train" : "trireme eval";
}

// Other ranks reach this one by `host`.
RankOutcome run_process_rank(const RunSetup& setup, const RankEnvironment& environment,
                             const std::string& host, ControlClient& client, Watch& watch) {
  if (setup.request.pins) {
    const Status pinned = pin_to_cores(rank_in_host(variable), setup.request.threads);
    if (!pinned.ok()) return {.status = pinned, .is_own = true};
  }
  Result<std::unique_ptr<Transport>> transport = make_transport(setup, environment, host, client);
  if (!transport.ok()) return {.status = transport.error(), .is_own = false};
  RankOutcome outcome =
      run_any(setup, {.rank = environment.rank,
                      .transport = transport.value().get(),
                      .publish = [&](std::string text) { client.publish(std::move(text)); },
                      .watch = [&](const Executor* each) { watch.set_executor(0, each); },
                      .warn = warn,
                      .knows_memory = true,
                      .phase = [&](std::string text) { watch.set_phase(0, std::move(text)); }});
  // Its buffers may still be posted, so nothing is destroyed after a failure.
  if (!outcome.status.ok()) static_cast<void>(transport.value().release());
  return outcome;
}

// All ranks as threads over the loopback transport. The first error ends the others.
Status run_threads(const RunSetup& setup, ControlClient& client, Watch& watch) {
  const int32_t num_ranks = setup.num_ranks();
  const std::shared_ptr<LoopbackNetwork> network = make_loopback_network(num_ranks);
  std::mutex mutex;
  std::optional<Error> first_error;
  {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        if (setup.request.pins) {
          const Status pinned = pin_to_cores(rank, setup.request.threads);
          if (!pinned.ok()) warn(pinned.error().message);
        }
        const std::unique_ptr<Transport> transport = make_loopback_transport(network, rank);
        const RankOutcome outcome =
            run_any(setup, {.rank = rank,
                            .transport = transport.get(),
                            .publish = [&](std::string text) { client.publish(std::move(text)); },
                            .watch =
                                [&watch, rank](const Executor* executor) {
                                  watch.set_executor(static_cast<size_t>(rank), executor);
                                },
                            .warn = warn,
                            .phase =
                                [&watch, rank](std::string text) {
                                  watch.set_phase(static_cast<size_t>(rank), std::move(text));
                                }});
        if (outcome.status.ok()) return;
        const std::string& message = outcome.status.error().message;
        const std::lock_guard lock(mutex);
        if (!first_error.has_value()) {
          first_error = Error{fmt::format("{}: {}", setup.describe_rank(rank), message)};
        }
        shut_down(*network, message);
      });
    }
  }
  return first_error.has_value() ? Status(*first_error) : Status();
}

// More than a hub takes to hear all ranks after a failure.
constexpr std::chrono::milliseconds kHubTimeout(4000);
// More than the ranks of a machine are apart in their start, and short for who waits for an error.
constexpr std::chrono::milliseconds kRefusalsApart(7000);

// All ranks of a machine refuse the same request: the first one speaks. The others stay until the
// launcher ends them, because it would end the first one when they end. Where it does not end them
// the first one has found nothing wrong.
int refuse(const std::string& words, LastWords* last_words) {
  if (is_first_of_host(variable) || last_words == nullptr ||
      !last_words->wait_for_sigterm(kRefusalsApart)) {
    std::fputs(words.c_str(), stderr);
  }
  return 2;
}

// The rendezvous of a rank that knows its work, and the run.
int run_ranks_of(const RunSetup& setup, const RankEnvironment& environment,
                 const std::string& interface_host, LastWords* last_words) {
  if (environment.owns_hub() && !environment.is_supervised()) {
    for (const std::string& note : setup.notes()) fmt::print(stderr, "trireme-worker: {}\n", note);
  }
  Watch watch;
  RunVoice voice(setup);
  const std::string self = setup.describe_rank(environment.rank) + host_suffix(environment);
  Result<Rendezvous> met =
      rendezvous(environment,
                 {.describe_rank = [&setup](int32_t rank) { return setup.describe_rank(rank); },
                  .supervisor = supervisor_of(setup.request),
                  .interface_host = interface_host,
                  .timeout = std::chrono::seconds(setup.request.rendezvous_timeout_s),
                  .silence_timeout = std::chrono::seconds(setup.request.silence_timeout_s),
                  .on_notice =
                      [&](const std::string& notice) {
                        if (!environment.owns_hub() && !is_first_of_host(variable)) return;
                        fmt::print(stderr, "trireme-worker: {}\n", notice);
                      },
                  .where = [&watch] { return watch.text(); },
                  // Whoever owns the hub has heard all ranks, and says it.
                  .on_lost =
                      [&environment](const std::string& /*reason*/) {
                        if (!environment.owns_hub()) leave(1);
                      },
                  .on_hub_lost =
                      [&](const std::string& reason) {
                        if (!environment.is_supervised()) {
                          fmt::print(stderr, "{} was in {} when {}\n", self, watch.text(), reason);
                        }
                        leave(1);
                      },
                  .on_hub_event = [&voice](const HubEvent& event) { voice.hear(event); }});
  if (!met.ok()) {
    fmt::print(stderr, "{}: {}\n", self, met.error().message);
    return 1;
  }
  ControlClient& client = *met.value().client;
  if (last_words != nullptr) {
    last_words->set_farewell([&client] {
      static_cast<void>(
          client.fail("stopped by SIGTERM, which launchers send when they are stopped "
                      "or another rank has ended"));
    });
  }
  if (const Status agreed = agree_with_rank_zero(setup, environment.rank, client); !agreed.ok()) {
    static_cast<void>(client.fail(agreed.error().message, FailureOrigin::kOwn));
    leave(1);
  }
  load_vector_math();
  const bool uses_threads = environment.num_processes == 1 && setup.num_ranks() > 1;
  const RankOutcome outcome =
      uses_threads ? RankOutcome{.status = run_threads(setup, client, watch), .is_own = false}
                   : run_process_rank(setup, environment, met.value().own_host, client, watch);
  const Status& status = outcome.status;
  if (!status.ok()) {
    const Status told = client.fail(status.error().message,
                                    outcome.is_own ? FailureOrigin::kOwn : FailureOrigin::kUnknown);
    if (told.ok() && !environment.owns_hub()) leave(1);
    // The end of the run, or of the hub, ends this process on another thread with better words.
    std::this_thread::sleep_for(kHubTimeout);
    fmt::print(stderr, "{} failed: {}\n", self, one_line(status.error().message));
    leave(1);
  }
  const Status finished = client.finish();
  if (finished.ok() && environment.owns_hub()) voice.wait_for_the_end();
  leave(finished.ok() ? 0 : 1);
}

Status check_place(const RunSetup& setup, const RankEnvironment& environment) {
  const int32_t num_processes = environment.num_processes;
  if (num_processes == setup.num_ranks()) return Status();
  if (setup.request.probe.has_value()) {
    return Error{fmt::format("{} has started {} ranks, but --workers says {}; leave it out",
                             environment.launcher, num_processes, setup.num_ranks())};
  }
  if (num_processes == 1) return Status();
  return Error{fmt::format("{} has started {} ranks, but the plan has pp x dp = {} ranks",
                           environment.launcher, num_processes, setup.num_ranks())};
}

int profile_model(const ProfileRequest& request) {
  const char* place = variable(LoadProcesses::kLoadVariable);
  ProfileRun run{.is_load = place != nullptr,
                 .place = place == nullptr ? 0 : std::max(0, std::atoi(place))};
  if (run.is_load) LoadProcesses::follow_parent();
  const bool is_watched = !run.is_load && !request.run.is_quiet && ::isatty(STDERR_FILENO) == 1;
  run.show_progress = [is_watched](const std::string& line) {
    if (is_watched) fmt::print(stderr, "\r\x1b[K{}", line);
  };
  const Result<ProfileOutcome> outcome = run_profile(request, run);
  run.show_progress("");
  if (!outcome.ok()) {
    fmt::print(stderr, "trireme: {}\n", one_line(outcome.error().message));
    return 2;
  }
  if (!outcome.value().failure.empty()) {
    fmt::print(stderr, "trireme: profile: {}\n", one_line(outcome.value().failure));
    return 1;
  }
  if (!request.run.is_quiet) fmt::print(stderr, "{}", outcome.value().summary);
  return std::fputs(outcome.value().text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

// `last_words` of a rank that something other than `trireme train` started.
int run(const std::vector<std::string>& arguments, LastWords* last_words) {
  const auto refuse_for = [last_words](const std::string& message) {
    return refuse(fmt::format("trireme-worker: {}\n", one_line(message)), last_words);
  };
  const Request request = parse_request("trireme-worker", arguments);
  if (const auto* nothing = std::get_if<NothingToDo>(&request)) {
    if (nothing->exit_code != 0) return refuse(nothing->output, last_words);
    std::fputs(nothing->output.c_str(), stdout);
    return 0;
  }
  if (const auto* profile = std::get_if<ProfileRequest>(&request)) return profile_model(*profile);
  const auto* asked = std::get_if<RunRequest>(&request);
  if (asked == nullptr)
    return refuse_for("only train, eval, rehearse, probe and profile are for workers");
  const Result<RankEnvironment> environment = read_rank_environment(variable);
  if (!environment.ok()) return refuse_for(environment.error().message);
  RunRequest run_request = *asked;
  if (run_request.probe.has_value() && !run_request.workers.has_value()) {
    run_request.workers = environment.value().num_processes;
  }
  if (environment.value().owns_hub()) {
    if (const Status writable = check_outputs(run_request); !writable.ok()) {
      return refuse_for(writable.error().message);
    }
  }
  // A process alone has all ranks.
  const bool is_alone = environment.value().num_processes == 1;
  const Result<RunSetup> setup = make_run_setup(
      run_request, is_alone ? std::nullopt : std::optional(environment.value().rank));
  if (!setup.ok()) return refuse_for(setup.error().message);
  if (const Status fits = check_place(setup.value(), environment.value()); !fits.ok()) {
    return refuse_for(fits.error().message);
  }
  if (!environment.value().is_supervised()) {
    // The first rank has the hub as well.
    const int64_t num_files = files_of_ranks(2 * int64_t{environment.value().num_processes});
    if (const Status may = allow_open_files(num_files); !may.ok()) {
      return refuse_for(may.error().message);
    }
  }
  std::string interface_host;
  if (!run_request.interface.empty()) {
    Result<std::string> host = address_of_interface(run_request.interface);
    if (!host.ok()) return refuse_for("--interface: " + host.error().message);
    interface_host = std::move(host).value();
  }
  return run_ranks_of(setup.value(), environment.value(), interface_host, last_words);
}

// MKL, within libtorch, ends a process whose current folder is gone while it is loaded, with words
// of its own. The functions of this section run before any library's. Nothing is set up yet: system
// calls only.
__attribute__((no_sanitize("address", "thread", "undefined"))) void check_folder_before_libraries(
    int, char**, char**) {
  constexpr std::string_view kSentence =
      "trireme-worker: the current folder no longer exists; change to one that does\n";
  char path[4096];  // NOLINT: a buffer of the system call
  if (::syscall(SYS_getcwd, path, sizeof(path)) >= 0 || errno != ENOENT) return;
  static_cast<void>(::write(STDERR_FILENO, kSentence.data(), kSentence.size()));
  ::_exit(2);
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = check_folder_before_libraries;

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::end_with_a_sentence("trireme-worker");
  trireme::keep_freed_memory();
  trireme::count_tensor_memory();
  // Gloo writes to peers that may have gone; that has to be an error of a call, with words.
  ::signal(SIGPIPE, SIG_IGN);
  // Before anything slow: words are cut off until then.
  std::optional<trireme::LastWords> last_words;
  if (std::getenv("TRIREME_HUB") == nullptr) last_words.emplace();
  trireme::leave(trireme::run({argv + 1, argv + argc}, last_words ? &*last_words : nullptr));
}
