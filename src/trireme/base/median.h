// The median of some numbers.
#pragma once

#include <algorithm>
#include <vector>

#include "trireme/base/check.h"

namespace trireme {

// Of an even number of them the mean of the two in the middle. REQUIRES: one at least.
[[nodiscard]] inline double median(std::vector<double> numbers) {
  TRIREME_CHECK(!numbers.empty(), "nothing has no median");
  std::ranges::sort(numbers);
  const size_t middle = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[middle] : (numbers[middle - 1] + numbers[middle]) / 2;
}

}  // namespace trireme
