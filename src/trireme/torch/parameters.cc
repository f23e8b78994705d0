#include "trireme/torch/parameters.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/torch/final_gradients.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/tensors.h"

namespace trireme {
namespace {

// Runs when autograd has added all that one backward makes of a parameter's gradient.
class AfterAutograd : public torch::autograd::PostAccumulateGradHook {
 public:
  AfterAutograd(int32_t input, at::Tensor accumulator)
      : input_(input), accumulator_(std::move(accumulator)) {}

  void operator()(const at::Tensor& parameter) override {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.scalar_type() != accumulator_.scalar_type()) {
      const at::NoGradGuard no_grad;
      accumulator_.add_(gradient.is_sparse() ? gradient.to_dense() : gradient);
      gradient = at::Tensor();
    }
    if (GradientShare* share = GradientShare::current()) share->added(input_);
  }

 private:
  int32_t input_;
  at::Tensor accumulator_;
};

// One of the input's names that the weights have; nullptr when there is none.
const std::string* find_name(const InitialWeights& initial, const GraphInput& input) {
  const auto found = std::find_if(input.names.begin(), input.names.end(),
                                  [&](const std::string& name) { return initial.has(name); });
  return found == input.names.end() ? nullptr : &*found;
}

}  // namespace

Result<at::Tensor> load_value(const Archive& archive, const GraphInput& input,
                              const InitialWeights* initial) {
  const StoredTensor* stored = archive.find_tensor(input.names[0]);
  TRIREME_CHECK(stored != nullptr, "a graph input without a place");
  const bool is_saved = input.kind == GraphInput::Kind::kParameter ||
                        (input.kind == GraphInput::Kind::kBuffer && input.is_persistent);
  const std::string* name = initial != nullptr && is_saved ? find_name(*initial, input) : nullptr;
  const bool is_to_come = name == nullptr && is_saved && !archive.has_values(*stored);
  if (name == nullptr && !is_to_come) return load_tensor(archive, *stored);
  const TensorView* view = is_to_come ? nullptr : initial->find(*name);
  TRIREME_CHECK(is_to_come || (view != nullptr && view->sizes == stored->sizes),
                "weights that do not fit reached the runtime");
  return guard([&]() -> Result<at::Tensor> {
    at::Tensor tensor = at::empty_strided(stored->sizes, stored->strides,
                                          at::TensorOptions().dtype(scalar_type(stored->dtype)));
    if (is_to_come) return tensor;
    copy_into(tensor, *view);
    initial->release(*name);
    return tensor;
  });
}

Result<Parameters> Parameters::load(const Archive& archive, const Graph& graph, const Stage& stage,
                                    const BucketOptions& buckets, const InitialWeights* initial) {
  Parameters parameters;
  parameters.values_.resize(graph.inputs.size());
  parameters.accumulators_.resize(graph.inputs.size());
  parameters.row_sums_.resize(graph.inputs.size());
  for (const int32_t index : stage.inputs) {
    const GraphInput& input = graph.inputs[index];
    if (input.kind == GraphInput::Kind::kUser) continue;
    TRIREME_TRY(parameters.values_[index], load_value(archive, input, initial));
  }
  parameters.buckets_ = gradient_buckets(graph, stage, buckets);
  TRIREME_TRY(guard([&] {
    for (const int32_t index : stage.inputs) {
      if (graph.inputs[index].requires_grad) parameters.values_[index].set_requires_grad(true);
    }
    parameters.make_accumulators();
  }));
  return parameters;
}

void Parameters::make_accumulators() {
  flat_.clear();
  for (const GradientBucket& bucket : buckets_) {
    int64_t count = 0;
    for (const int32_t index : bucket.inputs) count += values_[index].numel();
    const at::Tensor flat =
        at::zeros({count}, at::TensorOptions().dtype(scalar_type(bucket.dtype)));
    int64_t offset = 0;
    for (const int32_t index : bucket.inputs) {
      const at::Tensor& value = values_[index];
      // Parameters are dense: as_strided keeps their order of dims, so autograd adds in place.
      accumulators_[index] = flat.as_strided(value.sizes(), value.strides(), offset);
      offset += value.numel();
      torch::autograd::impl::set_post_acc_grad_hooks(
          value, std::make_unique<AfterAutograd>(index, accumulators_[index]));
    }
    flat_.push_back(flat);
  }
}

Result<Parameters> Parameters::make_version() const {
  return guard([&]() -> Result<Parameters> {
    Parameters version = *this;
    for (const GradientBucket& bucket : buckets_) {
      for (const int32_t index : bucket.inputs) {
        version.values_[index] = values_[index].detach().clone().set_requires_grad(true);
      }
    }
    version.make_accumulators();
    return version;
  });
}

void Parameters::copy_weights(const Parameters& other, const std::vector<at::Tensor>& rows) {
  const at::NoGradGuard no_grad;
  for (const GradientBucket& bucket : buckets_) {
    for (const int32_t index : bucket.inputs) {
      if (rows.empty() || !rows[index].defined()) {
        values_[index].copy_(other.values_[index]);
      } else {
        values_[index].index_copy_(0, rows[index],
                                   other.values_[index].index_select(0, rows[index]));
      }
    }
  }
}

void Parameters::zero_gradients() {
  is_divided_ = false;
  for (size_t bucket = 0; bucket < flat_.size(); ++bucket) {
    const int32_t first = buckets_[bucket].inputs[0];
    if (row_sums_[first].rows.defined()) {
      accumulators_[first].index_fill_(0, row_sums_[first].rows, 0);
      row_sums_[first] = {};
    } else {
      flat_[bucket].zero_();
    }
  }
  for (const GradientBucket& bucket : buckets_) {
    for (const int32_t index : bucket.inputs) {
      at::Tensor& value = values_[index];
      const bool is_direct = value.scalar_type() == accumulators_[index].scalar_type();
      value.mutable_grad() = is_direct ? accumulators_[index] : at::Tensor();
    }
  }
}

void Parameters::check_gradients() const {
  for (const GradientBucket& bucket : buckets_) {
    for (const int32_t index : bucket.inputs) {
      const at::Tensor& value = values_[index];
      const bool is_direct = value.scalar_type() == accumulators_[index].scalar_type();
      TRIREME_CHECK(
          is_direct ? value.grad().is_same(accumulators_[index]) : !value.grad().defined(),
          "a gradient left its accumulator");
    }
  }
}

void Parameters::divide_gradients(double divisor) {
  if (is_divided_) return;
  is_divided_ = true;
  for (size_t bucket = 0; bucket < flat_.size(); ++bucket) counted(bucket).div_(divisor);
}

void Parameters::scale_gradients(double factor) {
  for (size_t bucket = 0; bucket < flat_.size(); ++bucket) counted(bucket).mul_(factor);
}

at::Tensor Parameters::counted(size_t bucket) const {
  const RowSums& of_rows = row_sums_[buckets_[bucket].inputs[0]];
  return of_rows.sums.defined() ? of_rows.sums : flat_[bucket];
}

at::Tensor Parameters::gradient(int32_t input) const {
  const RowSums& of_rows = row_sums_[input];
  at::Tensor whole = accumulators_[input];
  if (of_rows.rows.defined()) whole.index_copy_(0, of_rows.rows, of_rows.sums);
  return whole.to(values_[input].scalar_type());
}

}  // namespace trireme
