// What the optimizers are told; torch-free, so that the command line can fill it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

struct OptimizerOptions {
  std::string name = "adamw";  // a row of optimizer.cc's table
  double momentum = 0;
  bool is_nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay;  // the optimizer's own default when absent
  std::string no_decay;                // regular expression; a parameter it is found in: decay 0
};

struct OptimizerInfo {
  std::string_view name;
  std::string_view summary;
  double default_weight_decay;
};
[[nodiscard]] std::span<const OptimizerInfo> optimizer_infos();

}  // namespace trireme
