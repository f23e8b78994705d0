#include "trireme/torch/optimizer.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include <ATen/ATen.h>

#include "trireme/torch/row_replay.h"

namespace trireme {
namespace {

// The operands of the fused kernels. Rows are copied from their parameters, and put back.
struct Operands {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
};

Operands operands_of(const std::vector<ParameterGradient>& group) {
  Operands operands;
  for (const ParameterGradient& each : group) {
    operands.parameters.push_back(each.rows.defined() ? each.parameter.index_select(0, each.rows)
                                                      : each.parameter);
    operands.gradients.push_back(each.gradient);
  }
  return operands;
}

void put_back(const std::vector<ParameterGradient>& group, const Operands& operands) {
  for (size_t i = 0; i < group.size(); ++i) {
    if (!group[i].rows.defined()) continue;
    at::Tensor parameter = group[i].parameter;
    parameter.index_copy_(0, group[i].rows, operands.parameters[i]);
  }
}

// torch.optim.SGD; dampening 0.
class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, std::vector<OptimizerGroup> groups)
      : options_(options), groups_(std::move(groups)), momentum_(groups_.size()) {
    if (options.momentum == 0) return;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const at::Tensor& p : groups_[g].parameters) momentum_[g].push_back(at::empty_like(p));
    }
  }

  [[nodiscard]] bool takes_rows(size_t group) const override {
    // In 16 bits the last few elements of a tensor are rounded in another way than the others.
    return options_.momentum == 0 && groups_[group].weight_decay == 0 &&
           !groups_[group].parameters.empty() &&
           !at::isReducedFloatingType(groups_[group].parameters[0].scalar_type());
  }

  void step(const std::vector<std::vector<ParameterGradient>>& gradients, double lr) override {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (gradients[g].empty()) continue;
      const Operands operands = operands_of(gradients[g]);
      if (at::isReducedFloatingType(operands.parameters[0].scalar_type())) {
        step_reduced(g, operands.parameters, operands.gradients, lr);
      } else {
        at::_fused_sgd_(operands.parameters, operands.gradients, momentum_[g],
                        groups_[g].weight_decay, options_.momentum, lr, /*dampening=*/0,
                        options_.is_nesterov, /*maximize=*/false, is_first_step_);
      }
      put_back(gradients[g], operands);
    }
    is_first_step_ = false;
  }

 private:
  // The fused kernel of torch 2.13 for CPUs changes no 16-bit parameter but its last few elements.
  // This is torch.optim.SGD with fused=False, operator for operator.
  void step_reduced(size_t g, const std::vector<at::Tensor>& parameters,
                    const std::vector<at::Tensor>& gradients, double lr) {
    // As a tensor: mul_(Scalar) of ATen would round the factor to 16 bits first.
    const at::Tensor factor = at::scalar_tensor(options_.momentum, at::kDouble);
    for (size_t i = 0; i < gradients.size(); ++i) {
      at::Tensor parameter = parameters[i];
      at::Tensor change = gradients[i];
      if (groups_[g].weight_decay != 0) change = change.add(parameter, groups_[g].weight_decay);
      if (options_.momentum != 0) {
        at::Tensor& momentum = momentum_[g][i];
        if (is_first_step_) {
          momentum.copy_(change);
        } else {
          momentum.mul_(factor).add_(change);
        }
        change = options_.is_nesterov ? change.add(momentum, options_.momentum) : momentum;
      }
      parameter.add_(change, -lr);
    }
  }

  OptimizerOptions options_;
  std::vector<OptimizerGroup> groups_;
  std::vector<std::vector<at::Tensor>> momentum_;
  bool is_first_step_ = true;
};

// torch.optim.AdamW (Loshchilov and Hutter, ICLR 2019). Where rows may be put off, an update is of
// the rows that have a gradient, and the others make up for it before they are read: equal to
// rounding, since the steps that they replay are those of the formula. The lazy one leaves them
// out.
class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, std::vector<OptimizerGroup> groups)
      : options_(options), groups_(std::move(groups)) {
    for (const OptimizerGroup& group : groups_) {
      State& state = states_.emplace_back(State{.replay = {options, group.weight_decay}});
      for (const at::Tensor& p : group.parameters) {
        state.averages.push_back(at::zeros_like(p));
        state.squares.push_back(at::zeros_like(p));
        state.steps.push_back(step_);
      }
      state.last.resize(group.parameters.size());
    }
  }

  [[nodiscard]] bool takes_rows(size_t group) const override {
    const std::vector<at::Tensor>& parameters = groups_[group].parameters;
    if (needs_rows(options_)) return !parameters.empty();
    // Without eps a row that has never had a gradient becomes 0 / 0, in torch as here.
    return options_.puts_off_rows && options_.eps > 0 && !parameters.empty() &&
           !at::isReducedFloatingType(parameters[0].scalar_type());
  }

  void step(const std::vector<std::vector<ParameterGradient>>& gradients, double lr) override {
    step_.add_(1);
    for (size_t g = 0; g < groups_.size(); ++g) {
      State& state = states_[g];
      const int64_t before = state.replay.num_steps();
      state.replay.add_step(lr);
      if (gradients[g].empty()) continue;
      std::vector<at::Tensor> averages = state.averages;
      std::vector<at::Tensor> squares = state.squares;
      for (size_t i = 0; i < gradients[g].size(); ++i) {
        const auto& [parameter, gradient, rows] = gradients[g][i];
        at::Tensor& last = state.last[i];
        catch_up(state, i, parameter, rows, before, Keeps::kAll);
        if (!rows.defined()) {
          if (last.defined()) last.fill_(before + 1);
          continue;
        }
        averages[i] = averages[i].index_select(0, rows);
        squares[i] = squares[i].index_select(0, rows);
        if (needs_rows(options_)) continue;  // the others miss this step for good
        if (!last.defined()) last = at::full({parameter.size(0)}, before, at::kLong);
        last.index_fill_(0, rows, before + 1);
      }
      const Operands operands = operands_of(gradients[g]);
      at::_fused_adamw_(operands.parameters, operands.gradients, averages, squares, {}, state.steps,
                        lr, options_.beta1, options_.beta2, groups_[g].weight_decay, options_.eps,
                        /*amsgrad=*/false, /*maximize=*/false);
      put_back(gradients[g], operands);
      for (size_t i = 0; i < gradients[g].size(); ++i) {
        if (!gradients[g][i].rows.defined()) continue;
        state.averages[i].index_copy_(0, gradients[g][i].rows, averages[i]);
        state.squares[i].index_copy_(0, gradients[g][i].rows, squares[i]);
      }
    }
  }

  void catch_up(size_t group, size_t i, const at::Tensor& parameter, const at::Tensor& rows,
                Keeps keeps) override {
    State& state = states_[group];
    catch_up(state, i, parameter, rows, state.replay.num_steps(), keeps);
  }

  [[nodiscard]] bool has_late_rows(size_t group, size_t i) const override {
    return states_[group].last[i].defined();
  }

 private:
  struct State {
    RowReplay replay;
    std::vector<at::Tensor> averages = {};
    std::vector<at::Tensor> squares = {};
    std::vector<at::Tensor> steps = {};  // each is step_
    // Of a table whose rows are put off: how many steps each row has taken. Else undefined.
    std::vector<at::Tensor> last = {};
  };

  static void catch_up(State& state, size_t i, const at::Tensor& parameter, const at::Tensor& rows,
                       int64_t until, Keeps keeps) {
    const at::Tensor& last = state.last[i];
    if (!last.defined()) return;
    const at::Tensor late = rows.defined()
                                ? rows.masked_select(last.index_select(0, rows).lt(until))
                                : last.lt(until).nonzero().reshape({-1});
    // Few at once, so that copies of a large table take little memory.
    constexpr int64_t kRows = 1 << 14;
    for (int64_t begin = 0; begin < late.size(0); begin += kRows) {
      const at::Tensor some = late.narrow(0, begin, std::min(kRows, late.size(0) - begin));
      parameter.scalar_type() == at::kDouble
          ? replay<double>(state, i, parameter, some, until, keeps)
          : replay<float>(state, i, parameter, some, until, keeps);
    }
  }

  template <typename Number>
  static void replay(State& state, size_t i, at::Tensor parameter, const at::Tensor& rows,
                     int64_t until, Keeps keeps) {
    const at::Tensor weights = parameter.index_select(0, rows);
    const at::Tensor averages = state.averages[i].index_select(0, rows);
    const at::Tensor squares = state.squares[i].index_select(0, rows);
    const at::Tensor from = state.last[i].index_select(0, rows);
    const auto width = static_cast<size_t>(weights.size(1));
    const auto row_of = [width](const at::Tensor& tensor, int64_t row) {
      return std::span(tensor.mutable_data_ptr<Number>() + static_cast<size_t>(row) * width, width);
    };
    for (int64_t row = 0; row < rows.size(0); ++row) {
      state.replay.run(
          RowReplay::Row<Number>{row_of(weights, row), row_of(averages, row), row_of(squares, row)},
          from.const_data_ptr<int64_t>()[row], until);
    }
    parameter.index_copy_(0, rows, weights);
    if (keeps == Keeps::kNothing) return;
    state.averages[i].index_copy_(0, rows, averages);
    state.squares[i].index_copy_(0, rows, squares);
    state.last[i].index_fill_(0, rows, until);
  }

  OptimizerOptions options_;
  std::vector<OptimizerGroup> groups_;
  std::vector<State> states_;
  at::Tensor step_ = at::zeros({}, at::kFloat);  // the steps taken, as the fused kernel reads it
};

template <typename T>
std::unique_ptr<Optimizer> make(const OptimizerOptions& options,
                                std::vector<OptimizerGroup> groups) {
  return std::make_unique<T>(options, std::move(groups));
}

struct Row {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions&, std::vector<OptimizerGroup>);
};
constexpr std::array kRows = {Row{"sgd", make<Sgd>}, Row{"adamw", make<AdamW>},
                              Row{"lazy-adamw", make<AdamW>}};

constexpr bool has_the_rows_of_the_options() {
  bool is_equal = kRows.size() == kOptimizers.size();
  for (size_t i = 0; is_equal && i < kRows.size(); ++i) {
    is_equal = kRows[i].name == kOptimizers[i].name;
  }
  return is_equal;
}
static_assert(has_the_rows_of_the_options());

}  // namespace

Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                  std::vector<OptimizerGroup> groups) {
  std::string known;
  for (const Row& row : kRows) {
    if (row.name == options.name) return row.make(options, std::move(groups));
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return Error{fmt::format("there is no optimizer '{}'; known are {}", options.name, known)};
}

}  // namespace trireme
