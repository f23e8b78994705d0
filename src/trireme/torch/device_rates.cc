#include "trireme/torch/device_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::pair<const char*, at::ScalarType>, 3> kDTypes = {
    {{"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}}};
constexpr int64_t kSmallestProduct = 64;  // rows and columns
constexpr int64_t kLargestProduct = 1024;
constexpr int64_t kCopyBytes = 64 << 20;  // more than caches hold
constexpr int64_t kNumLaunches = 2000;
constexpr double kNumMeasurements = 16;  // of each rate, if the budget allows
constexpr size_t kMostMeasurements = 64;

double seconds_of(const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// work / seconds of each run, until the budget is spent, and once at least.
std::vector<double> rates(double work, double budget_s, const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  std::vector<double> found;
  do {
    found.push_back(work / seconds_of(run));
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < budget_s &&
           found.size() < kMostMeasurements);
  return found;
}

// The largest product that the budget has time for kNumMeasurements times: small ones do not fill a
// processor.
std::vector<double> product_rates(at::ScalarType dtype, double budget_s) {
  for (int64_t size = kSmallestProduct;; size *= 2) {
    const at::Tensor a = at::rand({size, size}).to(dtype);
    const at::Tensor b = at::rand({size, size}).to(dtype);
    at::Tensor result = at::mm(a, b);
    const auto run = [&] { at::mm_out(result, a, b); };
    // Of the next size, eight times as much work; what comes between takes one run at most longer.
    const double next = 8 * std::min({seconds_of(run), seconds_of(run), seconds_of(run)});
    if (size < kLargestProduct && next * kNumMeasurements < budget_s) continue;
    return rates(2 * std::pow(static_cast<double>(size), 3), budget_s, run);
  }
}

std::vector<double> copy_rates(double budget_s) {
  const at::Tensor from = at::ones({kCopyBytes}, at::kByte);
  at::Tensor to = at::empty_like(from);
  return rates(2.0 * kCopyBytes, budget_s, [&] { to.copy_(from); });
}

std::vector<double> launch_seconds(double budget_s) {
  at::Tensor number = at::zeros({1});
  const auto run = [&] {
    for (int64_t i = 0; i < kNumLaunches; ++i) number.add_(1);
  };
  std::vector<double> found = rates(kNumLaunches, budget_s, run);
  for (double& each : found) each = 1 / each;
  return found;
}

}  // namespace

DeviceRates measure_device_rates(double budget_s, int32_t num_threads) {
  at::set_num_threads(num_threads);
  const at::NoGradGuard no_grad;
  const double share = budget_s / (kDTypes.size() + 2);
  DeviceRates found;
  for (const auto& [name, dtype] : kDTypes) found.flops[name] = product_rates(dtype, share);
  found.bytes_per_s = copy_rates(share);
  found.launch_s = launch_seconds(share);
  return found;
}

}  // namespace trireme
