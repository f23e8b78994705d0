// RowReplay: the steps of AdamW that rows of a table have missed, taken later.
//
// A row whose gradient is zero still moves: its weights decay, and its averages fade and move it
// further. As nobody reads it, that can wait until somebody does:
//
//   replay.add_step(rate)                 an update that some rows miss
//   replay.run(row, from, until)          steps from + 1 to until of one row
//
// Each step is the formula of AdamW with a gradient of zero. Averages fade by beta1 a step and
// their root by sqrt(beta2): after some hundred steps what they still add is less than 2^-60 of
// their first addition, and is left out; of the steps after those, which multiply, there is one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/torch/optimizer_options.h"

namespace trireme {

class RowReplay {
 public:
  RowReplay(const OptimizerOptions& options, double weight_decay);

  void add_step(double rate);
  [[nodiscard]] int64_t num_steps() const { return static_cast<int64_t>(step_sizes_.size()) - 1; }

  template <typename Number>
  struct Row {
    std::span<Number> weights;
    std::span<Number> averages;
    std::span<Number> squares;
  };
  // REQUIRES: 0 <= from <= until <= num_steps().
  void run(const Row<float>& row, int64_t from, int64_t until) const { replay(row, from, until); }
  void run(const Row<double>& row, int64_t from, int64_t until) const { replay(row, from, until); }

 private:
  template <typename Number>
  void replay(const Row<Number>& row, int64_t from, int64_t until) const;

  double beta1_;
  double beta2_;
  double eps_;
  double weight_decay_;
  int64_t most_steps_;  // that are taken one by one
  // By step, from 1; entry 0 is not used.
  std::vector<double> step_sizes_ = {0};  // the rate over the bias of the average
  std::vector<double> roots_ = {1};       // of the bias of the squares
  std::vector<double> decays_ = {1};      // what weights are multiplied by
  std::vector<double> log_decays_ = {0};  // the sum of the logarithms up to the step
};

}  // namespace trireme
