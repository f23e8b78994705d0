// this_host(): this machine as a Cluster, where nobody has described one: a host with one device a
// rank. Cores, memory and the processor's name are the machine's (hwloc); rates are assumed, one
// core for each device:
//
//   2.5e9 cycles a second, each with two fused multiply-adds of a vector, the same for 16-bit
//   numbers; 10 GB/s of memory; 5 us an operator
//
// and between ranks 60 us and 1.5 GB/s, as over TCP inside a host.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/cluster/cluster.h"

namespace trireme {

struct ThisHost {
  Cluster cluster;
  std::string processor;  // "Intel Xeon ..."
  int32_t num_cores = 1;
};

// REQUIRES: num_devices >= 1.
[[nodiscard]] ThisHost this_host(int32_t num_devices);

}  // namespace trireme
