// Parameters: what one stage owns: leaves of autograd, their gradient accumulators, buffers.
//
// The accumulators of a bucket are one flat tensor, so that it is reduced without copies; the
// gradient of a parameter is a view into it. A 16-bit parameter accumulates in 32 bits: its
// gradient is added when autograd has made it. What autograd has added, the thread's GradientShare
// learns.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/import/archive.h"
#include "trireme/import/initial_weights.h"
#include "trireme/plan/gradients.h"
#include "trireme/plan/partition.h"

namespace trireme {

// A parameter, buffer or constant: from `initial` where it has one of its names, else from the
// archive. It is of the archive's dtype and in its layout of memory. What is saved and has values
// in neither has arbitrary ones, for others to set. REQUIRES: `initial` has the archive's shapes;
// it may be null.
[[nodiscard]] Result<at::Tensor> load_value(const Archive& archive, const GraphInput& input,
                                            const InitialWeights* initial);

// One version of the weights, with the sums of gradients that are taken at it.
class Parameters {
 public:
  // With the values of load_value().
  static Result<Parameters> load(const Archive& archive, const Graph& graph, const Stage& stage,
                                 const BucketOptions& buckets, const InitialWeights* initial);

  // Another version, of the same values, with sums of its own. What gets no gradient both share.
  [[nodiscard]] Result<Parameters> make_version() const;
  // The values of another version become those of this one: of an input of which `rows` has any,
  // by index into Graph::inputs, those rows alone.
  void copy_weights(const Parameters& other, const std::vector<at::Tensor>& rows);

  // By index into Graph::inputs; undefined where the stage does not read it.
  [[nodiscard]] const at::Tensor& value(int32_t input) const { return values_[input]; }
  [[nodiscard]] const std::vector<at::Tensor>& values() const { return values_; }
  [[nodiscard]] const std::vector<GradientBucket>& buckets() const { return buckets_; }
  [[nodiscard]] const at::Tensor& bucket_memory(size_t bucket) const { return flat_[bucket]; }
  // The accumulator of a parameter with a gradient: shaped like it. Undefined for the others.
  [[nodiscard]] const at::Tensor& accumulator(int32_t input) const { return accumulators_[input]; }

  void zero_gradients();
  // After a backward. REQUIRES: autograd has added in place.
  void check_gradients() const;
  // Divides every accumulator by `divisor`, once after zero_gradients(), or multiplies it by
  // `factor`.
  void divide_gradients(double divisor);
  void scale_gradients(double factor);
  // The gradient in the parameter's dtype.
  [[nodiscard]] at::Tensor gradient(int32_t input) const;

  // What is known of the sum of a row table's gradients: which rows may be other than zero, and
  // what they are. Undefined where nothing is, and of what is no row table.
  struct RowSums {
    at::Tensor rows;
    at::Tensor sums;
  };
  // From now until zero_gradients() these are the gradient. REQUIRES: all other rows are zero.
  void set_row_sums(int32_t input, RowSums sums) { row_sums_[input] = std::move(sums); }
  [[nodiscard]] const RowSums& row_sums(int32_t input) const { return row_sums_[input]; }
  // The sums of the rows where they are known, else the accumulator.
  [[nodiscard]] const at::Tensor& summed(int32_t input) const {
    return row_sums_[input].sums.defined() ? row_sums_[input].sums : accumulators_[input];
  }

 private:
  void make_accumulators();
  // What division and scaling change of a bucket.
  [[nodiscard]] at::Tensor counted(size_t bucket) const;

  std::vector<at::Tensor> values_;
  std::vector<GradientBucket> buckets_;
  std::vector<at::Tensor> flat_;
  std::vector<at::Tensor> accumulators_;
  std::vector<RowSums> row_sums_;
  bool is_divided_ = false;
};

}  // namespace trireme
