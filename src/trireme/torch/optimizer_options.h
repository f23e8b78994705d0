// What the optimizers are told; torch-free, so that the command line can fill it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct OptimizerOptions {
  std::string name = "adamw";  // a row of kOptimizers
  double momentum = 0;
  bool is_nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay;  // the optimizer's own default when absent
  // Rows of tables whose gradient is zero may wait for their updates: Optimizer::catch_up().
  bool puts_off_rows = false;
  std::string no_decay;  // regular expression; a parameter it is found in: decay 0
};

struct OptimizerInfo {
  std::string_view name;
  std::string_view summary;
  double default_weight_decay = 0;
  // Options of the command line that mean nothing to the other optimizers.
  std::array<std::string_view, 2> own_options;
};
// A row here, and a class and a row in optimizer.cc, make an optimizer.
inline constexpr std::array kOptimizers = {
    OptimizerInfo{
        "sgd", "stochastic gradient descent, with momentum", 0.0, {"--momentum", "--nesterov"}},
    OptimizerInfo{"adamw", "Adam with decoupled weight decay", 0.01, {"--betas", "--eps"}},
    OptimizerInfo{"lazy-adamw",
                  "the same, but a row of an embedding's table moves only in steps that read it, "
                  "which is another rule",
                  0.01,
                  {"--betas", "--eps"}},
};

// Whether it needs to know which rows a step has read, of every table of rows.
[[nodiscard]] constexpr bool needs_rows(const OptimizerOptions& options) {
  return options.name == "lazy-adamw";
}

// Tensors of a parameter's size that the optimizer keeps of it.
[[nodiscard]] constexpr int32_t num_optimizer_states(const OptimizerOptions& options) {
  if (options.name == "adamw" || options.name == "lazy-adamw") return 2;
  return options.momentum > 0 ? 1 : 0;
}

}  // namespace trireme
