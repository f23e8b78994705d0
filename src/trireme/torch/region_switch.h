// RegionSwitch: grad mode, where a graph of autograd is built at all, and autocast as the region
// of a node wants them.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/graph/graph.h"

namespace trireme {

// Acts on the calling thread, and restores what it found when it goes.
class RegionSwitch {
 public:
  RegionSwitch(const Graph& graph, bool builds_graph);
  ~RegionSwitch();
  RegionSwitch(const RegionSwitch&) = delete;
  RegionSwitch& operator=(const RegionSwitch&) = delete;

  void enter(RegionId region);

 private:
  // The cache of cast weights lives as long as the outermost autocast region, as in torch.
  void leave_autocast();

  const Graph& graph_;
  bool builds_graph_;
  bool grad_before_;
  bool autocast_before_;
  at::ScalarType dtype_before_;
  bool is_inside_autocast_ = false;
  RegionId current_;
};

}  // namespace trireme
