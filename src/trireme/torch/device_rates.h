// What the processor of a rank computes and moves a second, timed with the operators that train.
// Torch-free to include.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme {

// Several measurements each.
struct DeviceRates {
  std::map<std::string, std::vector<double>> flops;  // a second, by dtype: square matrix products
  std::vector<double> bytes_per_s;                   // read and written by a copy
  std::vector<double> launch_s;                      // of an operator on one number
};

// Takes about `budget_s`. A first run of each does not count.
[[nodiscard]] DeviceRates measure_device_rates(double budget_s, int32_t num_threads);

}  // namespace trireme
