// `trireme profile`: the passes of each block, timed; the worker does it (worker/profile.h).

#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/cli/command.h"
#include "trireme/cli/commands/input_options.h"
#include "trireme/cli/commands/optimizer_options.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/validators.h"

namespace trireme {
namespace {

constexpr int64_t kMaxSamples = 1 << 20;  // of a micro-batch
constexpr int64_t kMaxConcurrent = 1024;

}  // namespace

RequestMaker add_profile(CLI::App& app) {
  const auto request = std::make_shared<ProfileRequest>();
  RunRequest& run = request->run;
  run.data = "random:1024";
  app.add_option("MODEL", run.model, "a .pt2")->required()->check(not_empty());
  app.add_option("--micro-batch", request->micro_batches,
                 "sizes of a micro-batch in samples: 1,2,4 [those of 1,2,4 that the model takes]")
      ->delimiter(',')
      ->check(whole_number(1, kMaxSamples));
  app.add_option_function<std::string>(
         "--budget",
         [request](const std::string& text) { request->budget_s = seconds_of_duration(text); },
         "how long to measure: 30s, 2m [30s]")
      ->check(duration());
  app.add_option("--concurrent", request->concurrent,
                 "processes that measure at the same time, for as many ranks on this machine: they "
                 "share its memory and caches [1]")
      ->check(whole_number(1, kMaxConcurrent));
  app.add_flag(
      "--processor-time", request->takes_processor_time,
      "what a pass uses of a processor in place of how long it takes: where processes have "
      "a share of one, for a cluster with a core_share");
  app.add_option("--threads", run.threads, "compute threads a rank")
      ->capture_default_str()
      ->transform(positive_count());
  app.add_flag("--pin", run.pins, "each process that measures stays on cores of its own");
  app.add_option("-o,--output", request->output, "write the profile to this YAML file [stdout]")
      ->check(not_empty());
  app.add_flag("--quiet", run.is_quiet, "no progress");
  app.add_option("--data", run.data,
                 "rows to measure with, as of `trireme train` [random:1024, made up]")
      ->check(not_empty())
      ->group("Data");
  app.add_option("--seq-len", run.seq_len, "length of a sample of bytes:, tokens: or random:")
      ->transform(positive())
      ->group("Data");
  add_stage_options(app, run.plan);
  app.add_option("--plan", run.plan.plan_path, "a plan.yaml instead of the options above")
      ->check(not_empty())
      ->group("Plan");
  add_input_options(app, run);
  add_optimizer_options(app, run);
  app.add_option("--operator-library", run.operator_libraries,
                 "a shared library that registers operators of other name spaces than aten")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
  return [&app, request]() -> Result<Request> {
    if (const std::string what = optimizer_contradiction(request->run, app); !what.empty()) {
      return Error{what};
    }
    std::ranges::sort(request->micro_batches);
    const auto repeated = std::ranges::adjacent_find(request->micro_batches);
    if (repeated != request->micro_batches.end()) {
      return Error{fmt::format("--micro-batch names {} twice", *repeated)};
    }
    return Request(*request);
  };
}

}  // namespace trireme
