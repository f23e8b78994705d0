// The command line. CLI11 reports by exceptions; they end here.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/launchers.h"
#include "trireme/cli/request.h"
#include "trireme/cli/validators.h"
#include "trireme/schedule/builders.h"

#ifndef TRIREME_VERSION
#define TRIREME_VERSION "0.1.0"
#endif

namespace trireme {
namespace {

// "x" or "x.1" before the equals sign, and a column after it.
LengthOption length_option(const std::string& text) {
  const Pair pair = split_pair(text);
  LengthOption option{.input = pair.first, .dim = {}, .column = pair.second};
  const size_t dot = pair.first.rfind('.');
  if (dot == std::string::npos) return option;
  size_t dim = 0;
  const char* end = pair.first.data() + pair.first.size();
  const auto [stop, code] = std::from_chars(pair.first.data() + dot + 1, end, dim);
  if (code != std::errc() || stop != end) return option;
  option.input = pair.first.substr(0, dot);
  option.dim = dim;
  return option;
}

constexpr int64_t kMaxSeconds = 1'000'000;

// Turns "0.9,0.999" into two numbers.
void add_betas(CLI::App& app, OptimizerOptions& optimizer) {
  app.add_option_function<std::vector<double>>(
         "--betas",
         [&optimizer](const std::vector<double>& betas) {
           optimizer.beta1 = betas.at(0);
           optimizer.beta2 = betas.at(1);
         },
         "AdamW's averaging factors [0.9,0.999]")
      ->delimiter(',')
      ->expected(2)
      ->group("Optimizer");
}

std::string schedule_names() {
  std::string names;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (!builder.is_training) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", builder.name);
  }
  return names;
}

void add_plan_options(CLI::App& app, PlanChoice& plan) {
  app.add_option("--pp", plan.pp, "pipeline stages")
      ->capture_default_str()
      ->transform(positive_count())
      ->group("Plan");
  app.add_option("--dp", plan.dp, "replicas (data parallelism)")
      ->capture_default_str()
      ->transform(positive_count())
      ->group("Plan");
  app.add_option("--micro-batches", plan.micro_batches, "micro-batches a replica and step [pp]")
      ->transform(positive_count())
      ->group("Plan");
  app.add_option("--schedule", plan.schedule, "pipeline schedule: " + schedule_names())
      ->capture_default_str()
      ->group("Plan");
  app.add_option("--cut", plan.cut,
                 "cut before these modules instead of where flops balance: h.3,h.6; with "
                 "one stage more than names")
      ->delimiter(',')
      ->check(not_empty())
      ->group("Plan");
}

// How the samples lie in the model's inputs, where it is not a row each.
void add_input_options(CLI::App& app, RunRequest& run) {
  using Texts = std::vector<std::string>;
  app.add_option_function<Texts>(
         "--jagged",
         [&run](const Texts& texts) {
           for (const std::string& text : texts) {
             const Pair pair = split_pair(text);
             run.jagged.emplace_back(pair.first, pair.second);
           }
         },
         "VALUES=OFFSETS: the input VALUES has the values of all samples joined, and OFFSETS says "
         "where each sample starts; what trireme.export(jagged=...) wrote needs no option")
      ->allow_extra_args(false)
      ->check(pair_of("VALUES=OFFSETS"))
      ->group("Data");
  app.add_option_function<Texts>(
         "--lengths",
         [&run](const Texts& texts) {
           for (const std::string& text : texts) run.lengths.push_back(length_option(text));
         },
         "INPUT[.DIM]=COLUMN: COLUMN says how long each sample is along the symbolic dim of INPUT; "
         "each step is cropped to its longest sample. A column that is no input is a tensor of "
         "safetensors: or is added to arrays: as ,COLUMN=PATH")
      ->allow_extra_args(false)
      ->check(pair_of("INPUT=COLUMN"))
      ->group("Data");
  app.add_option_function<Texts>(
         "--batch-dim",
         [&run](const Texts& texts) {
           for (const std::string& text : texts) {
             const Pair pair = split_pair(text);
             run.batch_dims.emplace_back(pair.first, std::stoul(pair.second));
           }
         },
         "INPUT=DIM: the dim of INPUT that is the batch, where an archive of torch.export does not "
         "say; the data have their samples in dim 0 nevertheless")
      ->allow_extra_args(false)
      ->check(pair_of("INPUT=DIM"))
      ->check(CLI::Validator(
          [](std::string& text) -> std::string {
            const std::string dim = split_pair(text).second;
            const bool is_number =
                dim.size() < 3 && dim.find_first_not_of("0123456789") == std::string::npos;
            return is_number ? "" : fmt::format("'{}' is not INPUT=DIM", text);
          },
          ""))
      ->group("Data");
}

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
  app.add_option("--rendezvous-timeout", run.rendezvous_timeout_s,
                 "seconds in which all ranks must have come")
      ->capture_default_str()
      ->transform(whole_number(1, kMaxSeconds))
      ->group("Hosts");
  app.add_option("--silence-timeout", run.silence_timeout_s,
                 "seconds after which a rank that is not heard is lost")
      ->capture_default_str()
      ->transform(whole_number(2, kMaxSeconds))
      ->group("Hosts");
  app.add_option("--interface", run.interface,
                 "network interface for what ranks send each other: eth1 [the one to rank 0]")
      ->check(not_empty())
      ->group("Hosts");
}

void add_optimizer_options(CLI::App& app, RunRequest& run) {
  OptimizerOptions& optimizer = run.optimizer;
  std::vector<std::string> names;
  std::string summaries;
  std::string decays;
  for (const OptimizerInfo& info : kOptimizers) {
    const std::string_view comma = names.empty() ? "" : ", ";
    names.emplace_back(info.name);
    summaries += fmt::format("{}{} ({})", comma, info.name, info.summary);
    decays += fmt::format("{}{} with {}", comma, info.default_weight_decay, info.name);
  }
  app.add_option("--optimizer", optimizer.name, summaries)
      ->capture_default_str()
      ->check(CLI::IsMember(names))
      ->group("Optimizer");
  app.add_option("--lr", run.lr, "learning rate")
      ->capture_default_str()
      ->check(number())
      ->group("Optimizer");
  app.add_option("--momentum", optimizer.momentum, "of SGD")
      ->capture_default_str()
      ->check(number())
      ->group("Optimizer");
  app.add_flag("--nesterov", optimizer.is_nesterov, "Nesterov's momentum")->group("Optimizer");
  add_betas(app, optimizer);
  app.add_option("--eps", optimizer.eps, "of AdamW")
      ->capture_default_str()
      ->check(number())
      ->group("Optimizer");
  app.add_option("--weight-decay", optimizer.weight_decay, "[" + decays + "]")
      ->check(number())
      ->group("Optimizer");
  app.add_option("--no-decay", optimizer.no_decay,
                 "no weight decay where this regular expression is found in a parameter's name: "
                 "'bias|norm'")
      ->check(expression())
      ->group("Optimizer");
  app.add_option("--freeze", run.freeze,
                 "do not train parameters where this regular expression is found in the name: "
                 "'wte|^h[.]0[.]'")
      ->check(expression())
      ->group("Optimizer");
  app.add_option("--clip-norm", run.clip_norm, "clip the gradient's global L2 norm to this")
      ->check(number())
      ->group("Optimizer");
  static const std::map<std::string, LearningRateKind> kinds = {
      {"constant", LearningRateKind::kConstant},
      {"linear", LearningRateKind::kLinear},
      {"cosine", LearningRateKind::kCosine}};
  app.add_option_function<std::string>(
         "--lr-schedule", [&run](const std::string& name) { run.lr_schedule = kinds.at(name); },
         "constant, linear or cosine. Step t of T (from 1), W warm-up steps: t <= W: "
         "lr t/W; then with u = (t-W)/(T-W+1): lr, lr (1-u), lr (1+cos(pi u))/2")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}))
      ->default_str("constant")
      ->group("Optimizer");
  app.add_option("--warmup-steps", run.warmup_steps, "W of --lr-schedule")
      ->capture_default_str()
      ->transform(whole_number(0))
      ->group("Optimizer");
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

// The ranges of CLI11 let nan through. Empty: nothing is wrong.
std::string out_of_range(const RunRequest& run) {
  const OptimizerOptions& optimizer = run.optimizer;
  const auto check = [](const char* option, double value, bool is_right, const char* range) {
    if (is_right && std::isfinite(value)) return std::string();
    return fmt::format("{} {} must be {}{}", option, value, range, is_right ? " and finite" : "");
  };
  const double decay = optimizer.weight_decay.value_or(0);
  const double clip_norm = run.clip_norm.value_or(1);
  for (const std::string& wrong :
       {check("--lr", run.lr, run.lr >= 0, "at least 0"),
        check("--momentum", optimizer.momentum, optimizer.momentum >= 0, "at least 0"),
        check("--betas", optimizer.beta1, optimizer.beta1 >= 0 && optimizer.beta1 < 1,
              "at least 0 and less than 1"),
        check("--betas", optimizer.beta2, optimizer.beta2 >= 0 && optimizer.beta2 < 1,
              "at least 0 and less than 1"),
        check("--eps", optimizer.eps, optimizer.eps >= 0, "at least 0"),
        check("--weight-decay", decay, decay >= 0, "at least 0"),
        check("--clip-norm", clip_norm, clip_norm > 0, "greater than 0")}) {
    if (!wrong.empty()) return wrong;
  }
  return "";
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
  for (const char* option : {"--pp", "--dp", "--micro-batches", "--schedule", "--cut"}) {
    if (run.plan.plan_path.empty() || app.count(option) == 0) continue;
    return fmt::format("--plan {} already says what {} says; leave one of them out",
                       run.plan.plan_path, option);
  }
  if (run.is_training && !run.steps.has_value() && !run.epochs.has_value()) {
    return "train needs --steps or --epochs";
  }
  if (run.save_every.has_value() && run.save.empty()) return "--save-every needs --save";
  if (run.eval_data.empty() &&
      (run.eval_every.has_value() || (run.is_training && run.eval_batches.has_value()))) {
    return "--eval-every and --eval-batches need --eval-data";
  }
  if (run.is_training && run.eval_data.empty() && !run.eval_model.empty()) {
    return "--eval-model needs --eval-data";
  }
  if (run.optimizer.is_nesterov && run.optimizer.name == "sgd" && run.optimizer.momentum == 0) {
    return "--nesterov needs --momentum greater than 0";
  }
  if (const std::string what = unused_length(run); !what.empty()) return what;
  if (const std::string what = impossible_lengths(run); !what.empty()) return what;
  if (!run.is_training) return "";
  for (const OptimizerInfo& info : kOptimizers) {
    for (const std::string_view option : info.own_options) {
      if (info.name == run.optimizer.name || app.count(std::string(option)) == 0) continue;
      return fmt::format("{} is for --optimizer {}, not {}", option, info.name, run.optimizer.name);
    }
  }
  return out_of_range(run);
}

// Without --pp, --cut says how many stages there are.
void follow_cut(const CLI::App& app, PlanChoice& plan) {
  if (app.count("--pp") == 0 && app.count("--cut") != 0) {
    plan.pp = static_cast<int32_t>(plan.cut.size()) + 1;
  }
}

// Empty: the first argument is a command, or an option of the program itself.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!arguments.empty() && command->get_name() == arguments[0]) return "";
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  if (arguments.empty()) return fmt::format("give a command: {}", known);
  for (const char* option : {"-h", "--help", "--version"}) {
    if (arguments[0] == option) return "";
  }
  if (arguments[0].starts_with("-")) {
    return fmt::format("{} is no option before a command; give a command: {}", arguments[0], known);
  }
  return fmt::format("there is no command {}; known are {}", arguments[0], known);
}

NothingToDo refused(std::string_view message) {
  return {.exit_code = 2, .output = one_line(message) + "\n"};
}

// What CLI11 found no place for, which it names in reverse.
std::string first_extra(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  for (const std::string& argument : arguments) {
    if (std::find(extras.begin(), extras.end(), argument) != extras.end()) return argument;
  }
  return extras.empty() ? "" : extras[0];
}

constexpr const char* kFooter =
    "Examples:\n"
    "  trireme inspect gpt.pt2\n"
    "  trireme plan gpt.pt2 --pp 2 --dp 2 --micro-batches 4 -o plan.yaml\n"
    "  trireme train gpt.pt2 --data bytes:texts --batch 32 --steps 200 --pp 2 --dp 2\n"
    "  trireme train gpt.pt2 --data tokens:train.bin --batch 32 --epochs 1 --plan plan.yaml "
    "--save out.safetensors\n"
    "  trireme eval gpt.pt2 --data tokens:valid.bin --batch 32 --init out.safetensors\n"
    "  torchrun --no-python --nproc-per-node 4 trireme-worker train gpt.pt2 --data bytes:texts "
    "--batch 32 --steps 200 --pp 2 --dp 2\n"
    "Exit status: 0 done, 1 the run failed, 2 the request, the model or the plan was wrong.";

}  // namespace

Request parse_request(const std::string& program, const std::vector<std::string>& arguments) {
  CLI::App app("Trireme trains unmodified PyTorch models over many devices.", program);
  app.set_version_flag("--version", "trireme " TRIREME_VERSION);
  app.require_subcommand(1);
  app.footer(program == "trireme-worker" ? kFooter + ("\n" + launcher_help()) : kFooter);
  app.option_defaults()->always_capture_default(false);

  InspectRequest inspect;
  CLI::App* inspect_app = app.add_subcommand("inspect", "what is in a .pt2");
  inspect_app->add_option("MODEL", inspect.model, "a .pt2")->required()->check(not_empty());
  inspect_app->add_flag("--graph", inspect.wants_graph, "the graph's text form");
  inspect_app->add_flag("--json", inspect.wants_json, "everything, as JSON");
  inspect_app->footer("Example:\n  trireme inspect gpt.pt2 --graph | less");

  PlanRequest plan;
  CLI::App* plan_app = app.add_subcommand("plan", "what would go where: the dry run of train");
  plan_app->add_option("MODEL", plan.model, "a .pt2")->required()->check(not_empty());
  add_plan_options(*plan_app, plan.plan);
  plan_app->add_option("-o,--output", plan.output, "write the plan to this YAML file")
      ->check(not_empty());
  plan_app->add_flag("--show-schedule", plan.shows_schedule, "draw the schedule of one step");
  plan_app->add_flag("--json", plan.wants_json, "print the plan as JSON");
  plan_app->footer("Example:\n  trireme plan gpt.pt2 --pp 2 --dp 2 --micro-batches 4 -o plan.yaml");

  RunRequest train;
  CLI::App* train_app = app.add_subcommand("train", "train a model");
  add_run_options(*train_app, train);
  add_train_options(*train_app, train);
  train_app->footer(kFooter);

  RunRequest eval;
  eval.is_training = false;
  eval.shuffles = false;
  CLI::App* eval_app = app.add_subcommand("eval", "the mean loss of a model on data");
  add_run_options(*eval_app, eval);
  eval_app->add_option("--eval-batches", eval.eval_batches, "batches to evaluate [all]")
      ->transform(positive())
      ->group("Data");
  eval_app->footer(kFooter);

  if (const std::string what = unknown_command(app, arguments); !what.empty()) {
    return refused(fmt::format("{}: {}; see {} --help", program, what, program));
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::Success& success) {
    // Help and version; CLI11 knows which.
    std::ostringstream out;
    std::ostringstream error;
    app.exit(success, out, error);
    return NothingToDo{.exit_code = 0, .output = out.str()};
  } catch (const CLI::ExtrasError&) {
    return refused(fmt::format("{}: {} does not take {}; see {} {} --help", program, arguments[0],
                               first_extra(app, arguments), program, arguments[0]));
  } catch (const CLI::ParseError& error) {
    const bool has_command = !arguments[0].starts_with("-");
    return refused(fmt::format("{}: {}; see {}{} --help", program, error.what(), program,
                               has_command ? " " + arguments[0] : ""));
  }
  if (inspect_app->parsed()) return inspect;
  if (plan_app->parsed()) {
    follow_cut(*plan_app, plan.plan);
    if (plan.wants_json && plan.shows_schedule) {
      return refused(fmt::format("{}: --json has no drawing; leave out --show-schedule", program));
    }
    return plan;
  }
  RunRequest& run = train_app->parsed() ? train : eval;
  follow_cut(train_app->parsed() ? *train_app : *eval_app, run.plan);
  if (const std::string what = contradiction(run, train_app->parsed() ? *train_app : *eval_app);
      !what.empty()) {
    return refused(fmt::format("{}: {}", program, what));
  }
  return run;
}

}  // namespace trireme
