#include "trireme/torch/final_gradients.h"

#include <utility>

#include "trireme/base/check.h"

namespace trireme {

FinalGradients::FinalGradients(std::span<const GradientBucket> buckets, size_t num_inputs,
                               OnFinal on_final)
    : bucket_of_(num_inputs, -1), num_shares_(num_inputs, 0), on_final_(std::move(on_final)) {
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    for (const int32_t input : buckets[bucket].inputs) {
      bucket_of_[static_cast<size_t>(input)] = static_cast<int32_t>(bucket);
    }
    num_inputs_.push_back(static_cast<int32_t>(buckets[bucket].inputs.size()));
  }
}

void FinalGradients::expect(std::span<const int32_t> inputs, int32_t num_shares) {
  for (const int32_t input : inputs) num_shares_[static_cast<size_t>(input)] += num_shares;
}

void FinalGradients::end_share(int32_t input) {
  const int32_t bucket = bucket_of_[static_cast<size_t>(input)];
  if (bucket < 0) return;
  int32_t& num_shares = num_shares_[static_cast<size_t>(input)];
  TRIREME_CHECK(num_shares > 0, "a sum of gradients has as many shares as were expected");
  if (--num_shares > 0) return;
  if (--num_inputs_[static_cast<size_t>(bucket)] == 0) on_final_(bucket);
}

GradientShare::GradientShare(FinalGradients& whole, std::span<const int32_t> inputs,
                             size_t num_inputs)
    : whole_(&whole), inputs_(num_inputs) {
  for (const int32_t input : inputs) inputs_[static_cast<size_t>(input)].is_open = true;
}

void GradientShare::will_add(int32_t index, Adds adds) {
  Input& input = inputs_[static_cast<size_t>(index)];
  if (adds == Adds::kByAutograd && std::exchange(input.has_autograd, true)) return;
  ++input.num_to_come;
}

void GradientShare::added(int32_t index) {
  Input& input = inputs_[static_cast<size_t>(index)];
  // Of what was not counted nothing is known before the pass has ended.
  if (input.num_to_come == 0) {
    TRIREME_CHECK(input.is_open, "a gradient came after the last that was counted");
    return;
  }
  if (--input.num_to_come > 0 || !input.is_open) return;
  input.is_open = false;
  whole_->end_share(index);
}

void GradientShare::close() {
  for (size_t index = 0; index < inputs_.size(); ++index) {
    if (!std::exchange(inputs_[index].is_open, false)) continue;
    whole_->end_share(static_cast<int32_t>(index));
  }
}

namespace {

thread_local GradientShare* share_here = nullptr;

}  // namespace

GradientShare::Scope::Scope(GradientShare* share) : before_(std::exchange(share_here, share)) {}
GradientShare::Scope::~Scope() { share_here = before_; }

GradientShare* GradientShare::current() { return share_here; }

}  // namespace trireme
