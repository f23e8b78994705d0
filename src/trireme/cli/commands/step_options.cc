#include "trireme/cli/commands/step_options.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/commands/optimizer_options.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/requested_step.h"
#include "trireme/cli/validators.h"

namespace trireme {
namespace {

struct Collectives {
  const char* name;
  CollectiveAlgorithm algorithm;
};
constexpr std::array<Collectives, 4> kCollectives = {{
    {"ring", CollectiveAlgorithm::kRing},
    {"tree", CollectiveAlgorithm::kTree},
    {"halving-doubling", CollectiveAlgorithm::kHalvingDoubling},
    {"hierarchical", CollectiveAlgorithm::kHierarchical},
}};

void add_network_options(CLI::App& app, StepRequest& request) {
  app.add_option_function<std::string>(
         "--collectives",
         [&request](const std::string& name) {
           const auto found = std::ranges::find(kCollectives, name, &Collectives::name);
           request.options.collectives = found->algorithm;
         },
         "how gradients are summed [ring]")
      ->check(CLI::IsMember({"ring", "tree", "halving-doubling", "hierarchical"}))
      ->group("Simulation");
  app.add_flag_callback(
         "--eager", [&request] { request.options.transfers = TransferMode::kEager; },
         "a transfer does not wait for its receive")
      ->group("Simulation");
  request.options.sharing = LinkSharing::kTransfersFirst;
  app.add_flag_callback(
         "--fair-links", [&request] { request.options.sharing = LinkSharing::kMaxMinFair; },
         "links do not serve transfers between stages before sums of gradients, as over Gloo")
      ->group("Simulation");
  app.add_option("--jitter", request.options.jitter,
                 "deviation of the logarithm of each pass's time, 0 to 1 [0]")
      ->check(number())
      ->group("Simulation");
  app.add_option("--seed", request.options.seed, "of the jitter [0]")
      ->check(whole_number(0))
      ->group("Simulation");
}

}  // namespace

void add_step_options(CLI::App& app, StepRequest& request) {
  app.add_option("SCHEDULE", request.what,
                 fmt::format("a MODEL.pt2, whose plan the options say as of `trireme train`; or a "
                             "schedule: {}, or a file with a schedule's text",
                             builder_names()))
      ->required()
      ->check(not_empty());
  app.add_option("--cluster", request.sources.cluster,
                 "hosts, devices and links as YAML, such as those of examples/clusters [this "
                 "machine, a core for each rank]")
      ->check(not_empty());
  app.add_option("--profile", request.sources.profile,
                 "what `trireme profile` measured of the model [the analytic model]")
      ->check(not_empty());
  app.add_option("--costs", request.costs,
                 "of a schedule: what the passes of each stage take, send and keep, as YAML, such "
                 "as those of examples/costs")
      ->check(not_empty());
  app.add_option("--model", request.model,
                 "instead of --costs, a model by its sizes, which the analytic model costs: "
                 "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257")
      ->check(not_empty());
  app.add_option("--micro-batch", request.samples, "samples of a micro-batch [1]")
      ->check(positive_count());
  app.add_option("--dtype", request.dtype, "of the products of --model [bfloat16]")
      ->check(not_empty());
  add_plan_options(app, request.plan);
  app.add_option("--plan", request.plan.plan_path,
                 "a plan of `trireme plan`, instead of --pp ... --cut")
      ->check(not_empty())
      ->group("Plan");
  add_optimizer_choice(app, request.optimizer);
  app.add_flag("--clip-norm", request.clips_norm, "every update waits for the norm")
      ->group("Optimizer");
  add_network_options(app, request);
}

std::string step_contradiction(const StepRequest& request, const CLI::App& app) {
  const auto given = [&app](std::initializer_list<const char*> options) -> const char* {
    for (const char* option : options) {
      if (app.count(option) > 0) return option;
    }
    return nullptr;
  };
  if (is_archive(request.what)) {
    if (const char* option = given({"--costs", "--model", "--dtype"})) {
      return fmt::format("{} says what {} says; leave it out", request.what, option);
    }
    for (const char* option : {"--pp", "--dp", "--micro-batches", "--schedule", "--chunks", "--cut",
                               "--comm", "--bucket-bytes", "--sparse", "--extra-warm-ups"}) {
      if (request.plan.plan_path.empty() || app.count(option) == 0) continue;
      return fmt::format("--plan {} already says what {} says; leave one of them out",
                         request.plan.plan_path, option);
    }
    return "";
  }
  if (const char* option = given({"--schedule", "--cut", "--bucket-bytes", "--sparse", "--plan",
                                  "--profile", "--optimizer", "--momentum", "--clip-norm"})) {
    return fmt::format("{} is for a MODEL.pt2, not for {}", option, in_quotes(request.what));
  }
  if (request.costs.empty() == request.model.empty()) {
    return fmt::format("{} needs a MODEL.pt2, or a schedule with --costs or --model, and not both",
                       app.get_name());
  }
  if (const char* option = given({"--pp", "--chunks", "--micro-batch", "--dtype"});
      option != nullptr && !request.costs.empty()) {
    return fmt::format("--costs says what {} says; leave it out", option);
  }
  const bool is_named = is_builder_name(request.what);
  if (const char* option = given({"--dp", "--micro-batches", "--comm", "--extra-warm-ups"});
      option != nullptr && !is_named) {
    return fmt::format("a schedule from a file says what {} says; leave it out", option);
  }
  if (!is_named && !request.model.empty()) {
    return fmt::format("--model needs a schedule by name: {}", builder_names());
  }
  return "";
}

}  // namespace trireme
