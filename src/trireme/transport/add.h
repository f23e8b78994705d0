// The sums of an all-reduce.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/graph/dtype.h"

namespace trireme {

// sum[i] = sum[i] + term[i]. REQUIRES: kFloat32 or kFloat64, and the same size. Any alignment.
void add_to(std::span<std::byte> sum, std::span<const std::byte> term, DType dtype);

}  // namespace trireme
