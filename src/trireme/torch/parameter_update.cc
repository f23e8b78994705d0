#include "trireme/torch/parameter_update.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/graph/name_pattern.h"

namespace trireme {

Result<ParameterUpdate> ParameterUpdate::make(const OptimizerOptions& options, const Graph& graph,
                                              const Parameters& parameters) {
  double weight_decay = 0;
  for (const OptimizerInfo& info : kOptimizers) {
    if (info.name == options.name) weight_decay = info.default_weight_decay;
  }
  weight_decay = options.weight_decay.value_or(weight_decay);
  std::optional<NamePattern> no_decay;
  if (!options.no_decay.empty()) {
    TRIREME_TRY(no_decay, NamePattern::make(options.no_decay));
  }
  // One group a dtype and decay: the fused kernels take one of each.
  std::map<std::pair<at::ScalarType, bool>, std::vector<int32_t>> members;
  for (const GradientBucket& bucket : parameters.buckets()) {
    for (const int32_t index : bucket.inputs) {
      const bool decays =
          !no_decay.has_value() || !no_decay->matches_any(graph.inputs[index].names);
      members[{parameters.value(index).scalar_type(), decays}].push_back(index);
    }
  }
  ParameterUpdate update;
  std::vector<OptimizerGroup> groups;
  for (const auto& [key, indices] : members) {
    OptimizerGroup group{.parameters = {}, .weight_decay = key.second ? weight_decay : 0.0};
    for (const int32_t index : indices) {
      group.parameters.push_back(parameters.value(index).detach());
    }
    groups.push_back(std::move(group));
    update.group_inputs_.push_back(indices);
  }
  TRIREME_TRY(update.optimizer_, make_optimizer(options, std::move(groups)));
  return update;
}

void ParameterUpdate::divide(Parameters& parameters, double items) {
  if (items > 0) parameters.divide_gradients(items);
}

void ParameterUpdate::fill_squares(const Parameters& parameters, const Partition& partition,
                                   int32_t stage, std::span<double> squares) {
  std::set<int32_t> elsewhere;  // tied parameters that an earlier stage answers for
  for (const Partition::TiedParameter& tied : partition.tied) {
    if (tied.stages.front() != stage) elsewhere.insert(tied.input);
  }
  for (const GradientBucket& bucket : parameters.buckets()) {
    for (const int32_t index : bucket.inputs) {
      if (elsewhere.contains(index)) continue;
      squares[index] = parameters.summed(index).to(at::kDouble).square().sum().item<double>();
    }
  }
}

void ParameterUpdate::clip(Parameters& parameters, double norm, double clip_norm) {
  const double factor = clip_norm / (norm + 1e-6);
  if (factor >= 1) return;
  parameters.scale_gradients(factor);  // a norm that is no number makes all of them none
}

void ParameterUpdate::step(const Parameters& parameters, double lr) {
  const at::NoGradGuard no_grad;
  changed_rows_.assign(parameters.values().size(), at::Tensor());
  std::vector<std::vector<ParameterGradient>> gradients(group_inputs_.size());
  for (size_t group = 0; group < group_inputs_.size(); ++group) {
    for (const int32_t index : group_inputs_[group]) {
      const at::Tensor weights = parameters.value(index).detach();
      const Parameters::RowSums& sums = parameters.row_sums(index);
      if (sums.rows.defined() && optimizer_->takes_rows(group)) {
        gradients[group].push_back({weights, sums.sums.to(weights.scalar_type()), sums.rows});
        changed_rows_[index] = sums.rows;
      } else {
        gradients[group].push_back({weights, parameters.gradient(index)});
      }
    }
  }
  optimizer_->step(gradients, lr);
}

void ParameterUpdate::catch_up(const at::Tensor& values, int32_t input, const at::Tensor& rows,
                               Optimizer::Keeps keeps) const {
  const at::NoGradGuard no_grad;
  const std::optional<Place> place = place_of(input);
  if (place.has_value()) optimizer_->catch_up(place->group, place->index, values, rows, keeps);
}

std::optional<ParameterUpdate::Place> ParameterUpdate::place_of(int32_t input) const {
  for (size_t group = 0; group < group_inputs_.size(); ++group) {
    const auto found = std::ranges::find(group_inputs_[group], input);
    if (found == group_inputs_[group].end()) continue;
    return Place{group, static_cast<size_t>(found - group_inputs_[group].begin())};
  }
  return std::nullopt;
}

// Rows that passes of this step have read stay as they were, so that autograd, which may hold the
// table for a backward, need not hear of it.
void ParameterUpdate::catch_up(const Parameters& parameters, int32_t input,
                               const at::Tensor& rows) const {
  catch_up(parameters.value(input).variable_data(), input, rows, Optimizer::Keeps::kAll);
}

at::Tensor ParameterUpdate::current_values(const Parameters& parameters, int32_t input) const {
  const at::Tensor values = parameters.value(input).detach();
  const std::optional<Place> place = place_of(input);
  if (!place.has_value() || !optimizer_->has_late_rows(place->group, place->index)) return values;
  at::Tensor current = values.clone();
  catch_up(current, input, {}, Optimizer::Keeps::kNothing);
  return current;
}

}  // namespace trireme
