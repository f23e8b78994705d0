// Which samples a step trains on, and how they are shared out: pure arithmetic that every rank does
// for itself and all agree on.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

enum class SampleOrder : uint8_t { kShuffled, kSequential };
enum class LastBatch : uint8_t { kKept, kDropped };

struct BatchOptions {
  int64_t num_samples = 0;
  int64_t batch = 1;  // global samples a step
  uint64_t seed = 0;
  SampleOrder order = SampleOrder::kShuffled;
  LastBatch last_batch = LastBatch::kKept;
};

class Batches {
 public:
  // Errors: no samples; a batch larger than the data with the last batch dropped.
  static Result<Batches> make(const BatchOptions& options);

  [[nodiscard]] int64_t batches_per_epoch() const;
  // How many samples the step has.
  [[nodiscard]] int64_t num_samples(int64_t step) const;
  // Samples of the step, counted from 0 over all epochs. An epoch ends with a shorter batch when
  // the data does not divide (kKept). Shuffled: position p of epoch e holds sample
  // permutation(seed, e)(p); the permutation is computed, never stored.
  [[nodiscard]] std::vector<uint64_t> samples(int64_t step) const;

 private:
  explicit Batches(const BatchOptions& options) : options_(options) {}
  BatchOptions options_;
};

// `total` shared out into `parts`: sizes differ by at most one, larger ones first.
[[nodiscard]] std::vector<int64_t> share_out(int64_t total, int64_t parts);

// The micro-batches of one step. Global micro-batch g = replica x micro_batches + j; samples
// are contiguous. With fewer samples than dp x micro_batches there are fewer micro-batches, one
// sample each, shared out over the replicas like samples over micro-batches.
struct StepShares {
  std::vector<int32_t> num_micro_batches;  // by replica
  // By replica and micro-batch: [first, first + size) into the step's samples.
  struct Share {
    int64_t first = 0;
    int64_t size = 0;
  };
  std::vector<std::vector<Share>> shares;
};
[[nodiscard]] StepShares share_step(int64_t num_samples, int32_t dp, int32_t micro_batches);

}  // namespace trireme
