// Tuner: finds the options of a policy that make a step short, by trying a few: what ByteScheduler
// tunes its partition and its credit by (Peng et al., SOSP 2019).
//
// Bayesian optimisation: ten points at random, then five where a Gaussian process through all that
// was tried expects the largest improvement over the best. Sizes are looked at by their logarithm.
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/comm/policy.h"

namespace trireme {

// A range of sizes, both ends included.
struct SizeRange {
  int64_t least = 1;
  int64_t most = 1;
};

struct TuningSpace {
  SizeRange chunk_bytes = {.least = 8'000'000, .most = 128'000'000};    // 2 to 32 million
  SizeRange credit_bytes = {.least = 16'000'000, .most = 256'000'000};  // 4 to 64 million
};

struct Tuned {
  PolicyOptions options;
  SimTime step = 0;
  int32_t num_tried = 0;
};

// `step_of`: what a step takes with these options. The same arguments give the same result.
[[nodiscard]] Tuned tune(const TuningSpace& space,
                         const std::function<SimTime(const PolicyOptions&)>& step_of);

}  // namespace trireme
