// `trireme-worker`: one rank of a run, or all of them as threads. Takes the arguments of
// `trireme train` or `trireme eval`; its place comes from the environment.

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "trireme/cli/request.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/loopback_transport.h"
#include "trireme/torch/gloo_transport.h"
#include "trireme/worker/allocator.h"
#include "trireme/worker/rank_loop.h"
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
  void set(size_t slot, const Executor* executor) {
    const std::lock_guard lock(mutex_);
    if (executors_.size() <= slot) executors_.resize(slot + 1, nullptr);
    executors_[slot] = executor;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const Executor* executor : executors_) {
      if (executor == nullptr) continue;
      text += (text.empty() ? "" : "; ") + executor->current_action();
    }
    return text.empty() ? "starting or ending" : text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<const Executor*> executors_;  // guarded by mutex_
};

Status run_process_rank(const RunSetup& setup, const RankEnvironment& environment,
                        ControlClient& client, Watch& watch) {
  const std::string host = environment.is_supervised() ? "127.0.0.1" : environment.master_host;
  TRIREME_TRY(std::unique_ptr<Transport> transport,
              make_gloo_transport({.rank = environment.rank,
                                   .num_ranks = environment.num_processes,
                                   .host = host},
                                  client));
  const Status status =
      run_rank(setup, {.rank = environment.rank,
                       .transport = transport.get(),
                       .publish = [&](std::string text) { client.publish(std::move(text)); },
                       .watch = [&](const Executor* executor) { watch.set(0, executor); }});
  // The executor's buffers may still be posted: nothing is destroyed after a failure.
  if (!status.ok()) static_cast<void>(transport.release());
  return status;
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
        const std::unique_ptr<Transport> transport = make_loopback_transport(network, rank);
        const Status status = run_rank(
            setup, {.rank = rank,
                    .transport = transport.get(),
                    .publish = [&](std::string text) { client.publish(std::move(text)); },
                    .watch = [&watch, rank](const Executor* executor) {
                      watch.set(static_cast<size_t>(rank), executor);
                    }});
        if (status.ok()) return;
        const std::lock_guard lock(mutex);
        if (!first_error.has_value()) {
          first_error = Error{fmt::format("{}: {}", setup.describe_rank(rank), status.error().message)};
        }
        shut_down(*network, status.error().message);
      });
    }
  }
  return first_error.has_value() ? Status(*first_error) : Status();
}

int refuse(const std::string& message, int status) {
  fmt::print(stderr, "trireme-worker: {}\n", message);
  return status;
}

int run(const std::vector<std::string>& arguments) {
  const Request request = parse_request("trireme-worker", arguments);
  if (const auto* nothing = std::get_if<NothingToDo>(&request)) {
    std::fputs(nothing->output.c_str(), nothing->exit_code == 0 ? stdout : stderr);
    return nothing->exit_code;
  }
  const auto* run_request = std::get_if<RunRequest>(&request);
  if (run_request == nullptr) return refuse("only train and eval are for workers", 2);
  const Result<RankEnvironment> environment =
      read_rank_environment([](const char* name) { return std::getenv(name); });
  if (!environment.ok()) return refuse(environment.error().message, 2);
  Result<RunSetup> setup = make_run_setup(*run_request);
  if (!setup.ok()) return refuse(setup.error().message, 2);
  const int32_t num_processes = environment.value().num_processes;
  if (num_processes != 1 && num_processes != setup.value().num_ranks()) {
    return refuse(fmt::format("WORLD_SIZE is {}, but the plan has pp x dp = {} ranks", num_processes,
                              setup.value().num_ranks()),
                  2);
  }
  Watch watch;
  const bool is_supervised = environment.value().is_supervised();
  const std::string self = setup.value().describe_rank(environment.value().rank);
  Result<Rendezvous> met = rendezvous(
      environment.value(), [&](int32_t rank) { return setup.value().describe_rank(rank); },
      [&watch] { return watch.text(); },
      [&](const std::string& reason) {
        // The supervisor says it better: it has heard all ranks.
        if (!is_supervised) {
          fmt::print(stderr, "{}\n{} was in {}\n", reason, self, watch.text());
        }
        leave(1);
      });
  if (!met.ok()) return refuse(met.error().message, 1);
  ControlClient& client = *met.value().client;
  const bool uses_threads = num_processes == 1 && setup.value().num_ranks() > 1;
  const Status status = uses_threads
                            ? run_threads(setup.value(), client, watch)
                            : run_process_rank(setup.value(), environment.value(), client, watch);
  if (!status.ok()) {
    static_cast<void>(client.fail(status.error().message));
    if (!is_supervised) fmt::print(stderr, "{} failed: {}\n", self, status.error().message);
    leave(1);
  }
  const Status finished = client.finish();
  leave(finished.ok() ? 0 : 1);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::keep_freed_memory();
  return trireme::run({argv + 1, argv + argc});
}
