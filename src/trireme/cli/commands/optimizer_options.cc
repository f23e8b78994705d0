#include "trireme/cli/commands/optimizer_options.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trireme/cli/validators.h"

namespace trireme {
namespace {

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

}  // namespace

void add_optimizer_choice(CLI::App& app, OptimizerOptions& optimizer) {
  std::vector<std::string> names;
  std::string summaries;
  for (const OptimizerInfo& info : kOptimizers) {
    const std::string_view comma = names.empty() ? "" : ", ";
    names.emplace_back(info.name);
    summaries += fmt::format("{}{} ({})", comma, info.name, info.summary);
  }
  app.add_option("--optimizer", optimizer.name, summaries)
      ->capture_default_str()
      ->check(CLI::IsMember(names))
      ->group("Optimizer");
  app.add_option("--momentum", optimizer.momentum, "of SGD")
      ->capture_default_str()
      ->check(number())
      ->group("Optimizer");
}

void add_optimizer_options(CLI::App& app, RunRequest& run) {
  OptimizerOptions& optimizer = run.optimizer;
  std::string decays;
  for (const OptimizerInfo& info : kOptimizers) {
    const std::string_view comma = decays.empty() ? "" : ", ";
    decays += fmt::format("{}{} with {}", comma, info.default_weight_decay, info.name);
  }
  add_optimizer_choice(app, optimizer);
  app.add_option("--lr", run.lr, "learning rate")
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

std::string optimizer_contradiction(const RunRequest& run, const CLI::App& app) {
  if (run.optimizer.is_nesterov && run.optimizer.name == "sgd" && run.optimizer.momentum == 0) {
    return "--nesterov needs --momentum greater than 0";
  }
  const auto* const chosen =
      std::ranges::find(kOptimizers, run.optimizer.name, &OptimizerInfo::name);
  for (const OptimizerInfo& info : kOptimizers) {
    for (const std::string_view option : info.own_options) {
      if (app.count(std::string(option)) == 0 ||
          std::ranges::find(chosen->own_options, option) != chosen->own_options.end()) {
        continue;
      }
      return fmt::format("{} is for --optimizer {}, not {}", option, info.name, run.optimizer.name);
    }
  }
  return out_of_range(run);
}

}  // namespace trireme
