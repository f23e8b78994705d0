#include "trireme/torch/row_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme {
namespace {

constexpr double kBitsThatCount = 60;

int64_t most_steps(double beta1, double beta2) {
  const double fading = beta1 / std::sqrt(beta2);
  if (fading >= 1) return std::numeric_limits<int64_t>::max();
  if (fading <= 0) return 1;
  return static_cast<int64_t>(std::ceil(-kBitsThatCount / std::log2(fading)));
}

}  // namespace

RowReplay::RowReplay(const OptimizerOptions& options, double weight_decay)
    : beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps),
      weight_decay_(weight_decay),
      most_steps_(most_steps(options.beta1, options.beta2)) {}

void RowReplay::add_step(double rate) {
  const auto step = static_cast<double>(step_sizes_.size());
  step_sizes_.push_back(rate / (1 - std::pow(beta1_, step)));
  roots_.push_back(std::sqrt(1 - std::pow(beta2_, step)));
  decays_.push_back(1 - rate * weight_decay_);
  // A logarithm has no sign.
  if (decays_.back() <= 0) most_steps_ = std::numeric_limits<int64_t>::max();
  log_decays_.push_back(log_decays_.back() + std::log(std::abs(decays_.back())));
}

template <typename Number>
void RowReplay::replay(const Row<Number>& row, int64_t from, int64_t until) const {
  // A row that was never trained only decays.
  const bool has_averages =
      most_steps_ == std::numeric_limits<int64_t>::max() ||
      std::ranges::any_of(row.averages, [](Number average) { return average != 0; });
  const int64_t one_by_one = has_averages ? std::min(until - from, most_steps_) : 0;
  const auto beta1 = static_cast<Number>(beta1_);
  const auto beta2 = static_cast<Number>(beta2_);
  const auto eps = static_cast<Number>(eps_);
  for (int64_t step = from + 1; step <= from + one_by_one; ++step) {
    const auto at = static_cast<size_t>(step);
    const auto size = static_cast<Number>(step_sizes_[at]);
    const auto root = static_cast<Number>(roots_[at]);
    const auto decay = static_cast<Number>(decays_[at]);
    for (size_t i = 0; i < row.weights.size(); ++i) {
      row.averages[i] *= beta1;
      row.squares[i] *= beta2;
      row.weights[i] = row.weights[i] * decay -
                       size * row.averages[i] / (std::sqrt(row.squares[i]) / root + eps);
    }
  }
  const int64_t rest = until - from - one_by_one;
  if (rest == 0) return;
  const auto passed = static_cast<size_t>(from + one_by_one);
  const auto decay =
      static_cast<Number>(std::exp(log_decays_[static_cast<size_t>(until)] - log_decays_[passed]));
  const auto fading1 = static_cast<Number>(std::pow(beta1_, static_cast<double>(rest)));
  const auto fading2 = static_cast<Number>(std::pow(beta2_, static_cast<double>(rest)));
  for (size_t i = 0; i < row.weights.size(); ++i) {
    row.weights[i] *= decay;
    row.averages[i] *= fading1;
    row.squares[i] *= fading2;
  }
}

template void RowReplay::replay(const Row<float>&, int64_t, int64_t) const;
template void RowReplay::replay(const Row<double>&, int64_t, int64_t) const;

}  // namespace trireme
