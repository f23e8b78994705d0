#include "trireme/data/batches.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/philox.h"

namespace trireme {

Result<Batches> Batches::make(const BatchOptions& options) {
  if (options.batch < 1) {
    return Error{fmt::format("the batch is {} samples but must be at least 1", options.batch)};
  }
  if (options.num_samples < 1) return Error{"the data has no samples"};
  if (options.last_batch == LastBatch::kDropped && options.batch > options.num_samples) {
    return Error{fmt::format(
        "the data has {} samples, fewer than the batch of {}, and --drop-last leaves no batch; "
        "use a smaller --batch or no --drop-last",
        options.num_samples, options.batch)};
  }
  return Batches(options);
}

int64_t Batches::batches_per_epoch() const {
  const bool has_shorter =
      options_.last_batch == LastBatch::kKept && options_.num_samples % options_.batch != 0;
  return options_.num_samples / options_.batch + (has_shorter ? 1 : 0);
}

int64_t Batches::num_samples(int64_t step) const {
  TRIREME_CHECK(step >= 0, "steps are counted from 0");
  const int64_t first = step % batches_per_epoch() * options_.batch;
  return std::min(options_.batch, options_.num_samples - first);
}

std::vector<uint64_t> Batches::samples(int64_t step) const {
  const int64_t count = num_samples(step);
  const int64_t epoch = step / batches_per_epoch();
  const int64_t first = step % batches_per_epoch() * options_.batch;
  const KeyedPermutation permutation(static_cast<uint64_t>(options_.num_samples),
                                     mix_bits(options_.seed, static_cast<uint64_t>(epoch)));
  std::vector<uint64_t> samples;
  samples.reserve(static_cast<size_t>(count));
  for (int64_t position = first; position < first + count; ++position) {
    const auto index = static_cast<uint64_t>(position);
    samples.push_back(options_.order == SampleOrder::kShuffled ? permutation(index) : index);
  }
  return samples;
}

std::vector<int64_t> share_out(int64_t total, int64_t parts) {
  TRIREME_CHECK(total >= 0 && parts > 0, "something is shared out into some parts");
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) sizes.push_back(total / parts + (i < total % parts ? 1 : 0));
  return sizes;
}

StepShares share_step(int64_t num_samples, int32_t dp, int32_t micro_batches) {
  TRIREME_CHECK(dp > 0 && micro_batches > 0, "a step has replicas and micro-batches");
  const int64_t wanted = int64_t{dp} * micro_batches;
  const int64_t total = std::min(num_samples, wanted);
  const std::vector<int64_t> counts = share_out(total, dp);
  const std::vector<int64_t> sizes =
      total > 0 ? share_out(num_samples, total) : std::vector<int64_t>();
  StepShares step;
  int64_t first = 0;
  size_t micro_batch = 0;
  for (const int64_t count : counts) {
    step.num_micro_batches.push_back(static_cast<int32_t>(count));
    std::vector<StepShares::Share>& shares = step.shares.emplace_back();
    for (int64_t j = 0; j < count; ++j) {
      const int64_t size = sizes[micro_batch++];
      shares.push_back({.first = first, .size = size});
      first += size;
    }
  }
  return step;
}

}  // namespace trireme
