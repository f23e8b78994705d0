#include "trireme/cost/device_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {

Result<DeviceModel> device_model_of(const DeviceKind& kind, std::string_view dtype) {
  std::string known;
  for (const auto& [name, flops_per_s] : kind.flops) {
    if (name == dtype) {
      return DeviceModel{.flops_per_s = flops_per_s,
                         .bytes_per_s = kind.bandwidth,
                         .tile = 1,
                         .matmul_efficiency = 0.8,
                         .matmul_half_depth = 100,
                         .memory_efficiency = 0.8,
                         .launch_s = kind.launch};
    }
    known += (known.empty() ? "" : ", ") + one_line(name, 60);
  }
  return Error{fmt::format("device kind {} has no flops of {}, but of {}; add them to the cluster",
                           in_quotes(kind.name), dtype, known)};
}

OperatorWork matmul_work(std::string name, const MatmulSize& size, double element_bytes) {
  const auto m = static_cast<double>(size.m);
  const auto n = static_cast<double>(size.n);
  const auto k = static_cast<double>(size.k);
  const auto batch = static_cast<double>(size.batch);
  return {.name = std::move(name),
          .matmul = size,
          .flops = 2 * m * n * k * batch,
          .bytes = element_bytes * batch * (m * k + k * n + m * n)};
}

double device_seconds(const DeviceModel& device, const OperatorWork& work) {
  const double memory = work.bytes / (device.bytes_per_s * device.memory_efficiency);
  if (!work.matmul.has_value()) return memory;
  const MatmulSize& size = *work.matmul;
  const double tiles = std::ceil(static_cast<double>(size.m) / device.tile) *
                       std::ceil(static_cast<double>(size.n) / device.tile) *
                       static_cast<double>(size.batch);
  const double waves = std::ceil(tiles / device.processors);
  const double depth = static_cast<double>(size.k) + device.matmul_half_depth;
  const double flops = waves * device.processors * device.tile * device.tile * 2 * depth;
  return std::max(memory, flops / (device.flops_per_s * device.matmul_efficiency));
}

double pass_seconds(const DeviceModel& device, std::span<const OperatorWork> works) {
  double computing = 0;
  double issuing = 0;
  for (const OperatorWork& work : works) {
    computing += device_seconds(device, work);
    issuing += work.launches * device.launch_s;
  }
  const double longer = std::max(computing, issuing);
  if (longer <= 0) return 0;
  const double ratio = std::min(computing, issuing) / longer;
  return longer *
         std::pow(1 + std::pow(ratio, device.overlap_exponent), 1 / device.overlap_exponent);
}

}  // namespace trireme
