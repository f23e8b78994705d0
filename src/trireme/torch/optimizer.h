// Optimizers through ATen's fused kernels, equal to torch.optim with fused=True.
#pragma once

#include <cstdint>
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

struct ParameterGradient {
  at::Tensor parameter;
  at::Tensor gradient;   // of its dtype
  at::Tensor rows = {};  // where defined: the gradient is of these rows alone, and the others' is 0
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Whether an update of the group's parameters takes rows alone: a row whose gradient is zero
  // stays as it is, or waits until it catches up.
  [[nodiscard]] virtual bool takes_rows(size_t group) const = 0;
  // One update of parameters that are like those of the groups, which may be others each time:
  // gradients[g][i] is of parameter i of group g.
  virtual void step(const std::vector<std::vector<ParameterGradient>>& gradients, double lr) = 0;
  // With OptimizerOptions::puts_off_rows, before anyone reads rows of a parameter (index i of its
  // group): makes the updates that they have missed, all rows' where `rows` is undefined. To have a
  // copy of the parameter's values caught up, and the parameter not, `keeps` is kNothing.
  enum class Keeps : uint8_t { kAll, kNothing };
  virtual void catch_up(size_t /*group*/, size_t /*i*/, const at::Tensor& /*parameter*/,
                        const at::Tensor& /*rows*/, Keeps /*keeps*/) {}
  [[nodiscard]] virtual bool has_late_rows(size_t /*group*/, size_t /*i*/) const { return false; }
};

// Error: an unknown name; lists the known ones.
[[nodiscard]] Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                                std::vector<OptimizerGroup> groups);

}  // namespace trireme
