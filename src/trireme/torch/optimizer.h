// Optimizers through ATen's fused kernels, equal to torch.optim with fused=True.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/result.h"
#include "trireme/torch/optimizer_options.h"

namespace trireme {

// Parameters of one dtype that share weight decay.
struct OptimizerGroup {
  std::vector<at::Tensor> parameters;
  double weight_decay = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update of parameters that are like those of the groups, which may be others each time.
  // gradients[g][i] belongs to parameter i of group g and has its dtype.
  virtual void step(const std::vector<std::vector<at::Tensor>>& parameters,
                    const std::vector<std::vector<at::Tensor>>& gradients, double lr) = 0;
};

// Error: an unknown name; lists the known ones.
[[nodiscard]] Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                                std::vector<OptimizerGroup> groups);

}  // namespace trireme
