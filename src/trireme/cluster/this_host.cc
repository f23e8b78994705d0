#include "trireme/cluster/this_host.h"

#include <algorithm>

#include <hwloc.h>
#include <unistd.h>

namespace trireme {
namespace {

constexpr double kCyclesPerSecond = 2.5e9;
constexpr double kMemoryBytesPerSecond = 10e9;
constexpr double kLaunchSeconds = 5e-6;
constexpr LinkSpeed kBetweenRanks = {.bandwidth = 1.5e9, .latency = 60e-6};

// Of float32, a cycle: two fused multiply-adds of a vector.
double operations_per_cycle() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2")) return 32;
#endif
  return 16;
}

struct Hardware {
  double memory = 0;
  int32_t num_cores = 1;
  std::string processor = "unknown processor";
};

// What is unknown keeps its default: a container may hide any of it.
Hardware find_hardware() {
  Hardware hardware;
  hardware.num_cores = static_cast<int32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return hardware;
  if (hwloc_topology_load(topology) == 0) {
    const hwloc_obj_t machine = hwloc_get_root_obj(topology);
    hardware.memory = static_cast<double>(machine->total_memory);
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    if (cores > 0) hardware.num_cores = cores;
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    for (const hwloc_obj_t object : {package, machine}) {
      const char* name =
          object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
      if (name == nullptr) continue;
      hardware.processor = name;
      break;
    }
  }
  hwloc_topology_destroy(topology);
  return hardware;
}

}  // namespace

ThisHost this_host(int32_t num_devices) {
  const Hardware hardware = find_hardware();
  const double flops = kCyclesPerSecond * operations_per_cycle();
  ThisHost host{.cluster = {.name = "this host"},
                .processor = hardware.processor,
                .num_cores = hardware.num_cores};
  host.cluster.device_kinds.push_back({.name = "core",
                                       .flops = {{"float32", flops},
                                                 {"float64", flops / 2},
                                                 {"bfloat16", flops},
                                                 {"float16", flops}},
                                       .memory = hardware.memory / num_devices,
                                       .bandwidth = kMemoryBytesPerSecond,
                                       .launch = kLaunchSeconds});
  // Each transfer goes over two of these links.
  LinkSpeed to_host = kBetweenRanks;
  to_host.latency /= 2;
  host.cluster.host_kinds.push_back(
      {.name = "machine", .device = "core", .devices = num_devices, .link = to_host});
  host.cluster.hosts.push_back({.name = "localhost", .kind = "machine"});
  return host;
}

}  // namespace trireme
