// ParameterUpdate: from the gradient sums of a step to new weights: the division by the items, the
// norm, clipping, the optimizer.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/partition.h"
#include "trireme/torch/optimizer.h"
#include "trireme/torch/optimizer_options.h"
#include "trireme/torch/parameters.h"

namespace trireme {

class ParameterUpdate {
 public:
  // For all versions of `parameters`, which outlive it.
  static Result<ParameterUpdate> make(const OptimizerOptions& options, const Graph& graph,
                                      const Parameters& parameters);

  // Makes means of the sums of a batch, once, however often it is called.
  static void divide(Parameters& parameters, double items);
  // squares[i] becomes the squared L2 norm of graph input i's mean gradient, where this stage
  // answers for it: a parameter that stages share is the first one's.
  static void fill_squares(const Parameters& parameters, const Partition& partition, int32_t stage,
                           std::span<double> squares);
  // As torch.nn.utils.clip_grad_norm_: gradients of a norm above `clip_norm` are scaled down to it.
  static void clip(Parameters& parameters, double norm, double clip_norm);
  // Changes the version's weights by its gradients.
  void step(const Parameters& parameters, double lr);
  // Before rows of an input are read, all where `rows` is undefined: Optimizer::catch_up().
  void catch_up(const Parameters& parameters, int32_t input, const at::Tensor& rows) const;
  // Its values, caught up in a copy.
  [[nodiscard]] at::Tensor current_values(const Parameters& parameters, int32_t input) const;
  // By index into Graph::inputs, the rows that the last step has changed; undefined: all. Empty
  // before the first.
  [[nodiscard]] const std::vector<at::Tensor>& changed_rows() const { return changed_rows_; }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  // Of a parameter, in its group of the optimizer.
  struct Place {
    size_t group = 0;
    size_t index = 0;
  };
  [[nodiscard]] std::optional<Place> place_of(int32_t input) const;
  void catch_up(const at::Tensor& values, int32_t input, const at::Tensor& rows,
                Optimizer::Keeps keeps) const;

  std::vector<at::Tensor> changed_rows_;
  std::vector<std::vector<int32_t>> group_inputs_;  // by group of the optimizer, as graph inputs
};

}  // namespace trireme
