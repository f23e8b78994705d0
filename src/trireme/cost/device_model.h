// DeviceModel: how long a device takes for what an operator does, from its data sheet and a few
// constants: the analytic model, for what was not measured.
//
// A matrix product fills the processors with tiles of its result, and whole waves of them:
//
//   seconds = waves * processors * tile^2 * 2 (k + half_depth) / (flops_per_s * efficiency)
//
// where half_depth is the depth at which a product reaches half of its efficiency: filling and
// emptying a tile's pipeline costs as much as so many steps of it. It takes never less than its
// bytes through the memory. Every other operator takes the time of its bytes (the roofline model,
// Williams et al., CACM 52(4), 2009).
//
// A pass (all operators that a host issues one after the other) takes as long as the device
// computes or as the host issues, whichever is longer. Where the two are close the device runs dry
// now and then, so both count a little: the norm (a^p + b^p)^(1/p) of the two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/result.h"
#include "trireme/cluster/cluster.h"

namespace trireme {

struct DeviceModel {
  double flops_per_s = 0;        // of matrix products, in the dtype of training
  double bytes_per_s = 0;        // of its memory
  double processors = 1;         // that work on tiles at once
  double tile = 128;             // rows and columns
  double matmul_efficiency = 1;  // of flops_per_s, of a deep and large product
  double matmul_half_depth = 0;  // elements
  double memory_efficiency = 1;  // of bytes_per_s
  double launch_s = 0;           // of the host, an operator
  double overlap_exponent = 5;   // p
  bool operator==(const DeviceModel&) const = default;
};

// A device of a Cluster, with the shares of its data sheet's rates that an A100 was found to reach
// (bench/vtrain.json) and no tiles. Error: the cluster does not know the dtype's rate.
[[nodiscard]] Result<DeviceModel> device_model_of(const DeviceKind& kind, std::string_view dtype);

// batch products of [m, k] and [k, n].
struct MatmulSize {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  bool operator==(const MatmulSize&) const = default;
};

// What an operator does; one entry may stand for a few alike.
struct OperatorWork {
  std::string name;
  std::optional<MatmulSize> matmul = {};
  double flops = 0;  // a multiply-add is two
  double bytes = 0;  // through the memory
  double launches = 1;
  bool operator==(const OperatorWork&) const = default;
};

// `element_bytes`: of each of its three matrices.
[[nodiscard]] OperatorWork matmul_work(std::string name, const MatmulSize& size,
                                       double element_bytes);

// Of the device alone. REQUIRES: a device with positive rates.
[[nodiscard]] double device_seconds(const DeviceModel& device, const OperatorWork& work);
// Of all of them, issued one after the other.
[[nodiscard]] double pass_seconds(const DeviceModel& device, std::span<const OperatorWork> works);

}  // namespace trireme
