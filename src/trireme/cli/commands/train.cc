// `trireme train` and `trireme eval`: the run itself is cli/launch.h's, or the worker's.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/cli/command.h"
#include "trireme/cli/commands/host_options.h"
#include "trireme/cli/commands/input_options.h"
#include "trireme/cli/commands/optimizer_options.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/validators.h"

namespace trireme {
namespace {

constexpr int64_t kMaxTimelineSteps = 10'000;
constexpr double kLeastReplanDrift = 1.1;  // less is noise

void add_data_options(CLI::App& app, RunRequest& run) {
  app.add_option("--data", run.data,
                 "bytes:PATH[,PATH]  tokens:FILE[:uint16|uint32]  arrays:x.npy,y.npy  "
                 "safetensors:FILE; samples lie in dim 0, an input without a batch is given once")
      ->required()
      ->check(not_empty())
      ->group("Data");
  app.add_option("--batch", run.batch, "samples a step, over all replicas")
      ->required()
      ->transform(positive())
      ->group("Data");
  app.add_option("--seq-len", run.seq_len, "length of a sample of bytes: or tokens:")
      ->transform(positive())
      ->group("Data");
  add_input_options(app, run);
}

void add_run_options(CLI::App& app, RunRequest& run) {
  app.add_option("MODEL", run.model, "a .pt2 of trireme.export or torch.export.save")
      ->required()
      ->check(not_empty());
  add_data_options(app, run);
  add_plan_options(app, run.plan);
  app.add_option("--plan", run.plan.plan_path,
                 "a plan of `trireme plan`, instead of --pp ... --cut")
      ->check(not_empty())
      ->group("Plan");
  app.add_option("--workers", run.workers,
                 "processes [pp x dp]; 1: all ranks are threads of one process")
      ->transform(positive_count())
      ->group("Run");
  app.add_option("--threads", run.threads, "compute threads a rank")
      ->capture_default_str()
      ->transform(positive_count())
      ->group("Run");
  app.add_flag("--pin", run.pins, "each rank of a machine computes on cores of its own")
      ->group("Run");
  app.add_option("--seed", run.seed, "of shuffling and of all random numbers")
      ->capture_default_str()
      ->transform(whole_number(0))
      ->group("Run");
  app.add_option("--operator-library", run.operator_libraries,
                 "a shared library that registers operators of other name spaces than aten with "
                 "TORCH_LIBRARY, forward and autograd; may be repeated")
      ->expected(1)
      ->take_all()
      ->check(not_empty())
      ->group("Run");
  app.add_option("--init", run.init,
                 "start from the weights of a safetensors file, a Hugging Face index or a folder "
                 "with either; floats are converted to the model's")
      ->check(not_empty())
      ->group("Run");
  app.add_option(
         "--eval-model", run.eval_model,
         "evaluate this archive (trireme.export(train=False)) with the weights of MODEL, by "
         "name, where evaluation runs other code")
      ->check(not_empty())
      ->group("Evaluation");
  app.add_option("--metrics", run.metrics, "write JSON lines here")
      ->check(not_empty())
      ->group("Run");
  app.add_flag("--quiet", run.is_quiet, "no progress")->group("Run");
  app.add_flag("--json", run.wants_json, "print the result as one JSON object")->group("Run");
  add_host_options(app, run);
}

void add_train_options(CLI::App& app, RunRequest& run) {
  auto* steps =
      app.add_option("--steps", run.steps, "optimizer steps")->transform(positive())->group("Data");
  app.add_option("--epochs", run.epochs, "passes over the data, instead of --steps")
      ->transform(positive())
      ->excludes(steps)
      ->group("Data");
  app.add_flag_function(
         "--no-shuffle", [&run](int64_t) { run.shuffles = false; },
         "take the samples in their order")
      ->group("Data");
  app.add_flag("--drop-last", run.drops_last, "leave out an epoch's last, shorter batch")
      ->group("Data");
  add_optimizer_options(app, run);
  app.add_option(
         "--save", run.save,
         "write the weights to this safetensors file at the end, and before the first evaluation")
      ->check(not_empty())
      ->group("Run");
  app.add_option("--save-every", run.save_every, "and every K steps")
      ->transform(positive())
      ->group("Run");
  app.add_option(
         "--grad-norms", run.grad_norms,
         "write the L2 norm of each parameter's gradient of the last step to this JSON file")
      ->check(not_empty())
      ->group("Run");
  app.add_option("--timeline", run.timeline,
                 "write what each rank did and when in the last steps to this file, for `trireme "
                 "report`; a run that is killed leaves it, too")
      ->check(not_empty())
      ->group("Run");
  app.add_option("--timeline-steps", run.timeline_steps, "how many last steps")
      ->capture_default_str()
      ->transform(whole_number(1, kMaxTimelineSteps))
      ->group("Run");
  app.add_flag("--predict", run.predicts,
               "at the end, lay the simulated time and memory of a step beside the measured ones")
      ->group("Run");
  app.add_option("--profile", run.profile,
                 "what `trireme profile` measured, for --predict [the analytic model]")
      ->check(not_empty())
      ->group("Run");
  app.add_option("--cluster", run.cluster,
                 "hosts, devices and links as YAML, for --predict [this machine]")
      ->check(not_empty())
      ->group("Run");
  app.add_option(
         "--replan", run.replan_drift,
         "over --transport direct: measure the links between hosts, and where one has become "
         "so many times as fast or as slow, find the extra warm-ups of 1f1b or 2bw anew; "
         "0: never")
      ->capture_default_str()
      ->check(number())
      ->group("Run");
  app.add_option("--eval-data", run.eval_data, "evaluate on this data, given like --data")
      ->check(not_empty())
      ->group("Evaluation");
  app.add_option("--eval-every", run.eval_every, "every K steps [at the end only]")
      ->transform(positive())
      ->group("Evaluation");
  app.add_option("--eval-batches", run.eval_batches, "batches an evaluation [all]")
      ->transform(positive())
      ->group("Evaluation");
}

// --seq-len would be without effect. Empty: it has one, or the data will be refused for its kind.
std::string unused_length(const RunRequest& run) {
  if (!run.seq_len.has_value()) return "";
  for (const std::string& data : {run.data, run.eval_data}) {
    if (!data.empty() && !data.starts_with("arrays:") && !data.starts_with("safetensors:"))
      return "";
  }
  return fmt::format("--seq-len {} is for bytes: and tokens:, not for {}", *run.seq_len, run.data);
}

// Empty: the data can have lengths.
std::string impossible_lengths(const RunRequest& run) {
  if (run.lengths.empty()) return "";
  for (const std::string& data : {run.data, run.eval_data}) {
    if (!data.starts_with("bytes:") && !data.starts_with("tokens:")) continue;
    return fmt::format("--lengths is for arrays: and safetensors:, not for {}", data);
  }
  return "";
}

// What CLI11 cannot say about options that belong together. Empty: nothing is wrong.
std::string contradiction(const RunRequest& run, const CLI::App& app) {
  for (const char* option : {"--pp", "--dp", "--micro-batches", "--schedule", "--chunks", "--cut",
                             "--comm", "--bucket-bytes", "--sparse", "--extra-warm-ups"}) {
    if (run.plan.plan_path.empty() || app.count(option) == 0) continue;
    return fmt::format("--plan {} already says what {} says; leave one of them out",
                       run.plan.plan_path, option);
  }
  if (run.is_training && !run.steps.has_value() && !run.epochs.has_value()) {
    return "train needs --steps or --epochs";
  }
  if (run.is_training && run.timeline.empty() && app.count("--timeline-steps") > 0) {
    return "--timeline-steps needs --timeline";
  }
  for (const auto& [option, path] :
       {std::pair("--profile", run.profile), std::pair("--cluster", run.cluster)}) {
    if (!path.empty() && !run.predicts) return fmt::format("{} needs --predict", option);
  }
  if (run.save_every.has_value() && run.save.empty()) return "--save-every needs --save";
  if (run.eval_data.empty() &&
      (run.eval_every.has_value() || (run.is_training && run.eval_batches.has_value()))) {
    return "--eval-every and --eval-batches need --eval-data";
  }
  if (run.is_training && run.eval_data.empty() && !run.eval_model.empty()) {
    return "--eval-model needs --eval-data";
  }
  if (const std::string what = unused_length(run); !what.empty()) return what;
  if (const std::string what = impossible_lengths(run); !what.empty()) return what;
  if (!run.is_training) return "";
  if (run.replan_drift != 0 && !(run.replan_drift >= kLeastReplanDrift)) {
    return fmt::format("--replan {:g}: a link has drifted from {} times on; 0 is never",
                       run.replan_drift, kLeastReplanDrift);
  }
  return optimizer_contradiction(run, app);
}

// What the words become once they are parsed.
RequestMaker maker(CLI::App& app, std::shared_ptr<RunRequest> run) {
  return [&app, run = std::move(run)]() -> Result<Request> {
    if (const std::string what = contradiction(*run, app); !what.empty()) return Error{what};
    return Request(*run);
  };
}

}  // namespace

RequestMaker add_train(CLI::App& app) {
  const auto run = std::make_shared<RunRequest>();
  add_run_options(app, *run);
  add_train_options(app, *run);
  return maker(app, run);
}

RequestMaker add_eval(CLI::App& app) {
  const auto run = std::make_shared<RunRequest>();
  run->is_training = false;
  run->shuffles = false;
  add_run_options(app, *run);
  app.add_option("--eval-batches", run->eval_batches, "batches to evaluate [all]")
      ->transform(positive())
      ->group("Data");
  return maker(app, run);
}

}  // namespace trireme
