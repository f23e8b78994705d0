// RegionSwitch: grad mode and autocast as the region of a node wants them.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/graph/graph.h"
#include "trireme/torch/operator_call.h"

namespace trireme {

// Acts on the calling thread, and restores what it found when it goes.
class RegionSwitch {
 public:
  RegionSwitch(const Graph& graph, Mode mode);
  ~RegionSwitch();
  RegionSwitch(const RegionSwitch&) = delete;
  RegionSwitch& operator=(const RegionSwitch&) = delete;

  void enter(RegionId region);

 private:
  // The cache of cast weights lives as long as the outermost autocast region, as in torch.
  void leave_autocast();

  const Graph& graph_;
  bool is_training_;
  bool grad_before_;
  bool autocast_before_;
  at::ScalarType dtype_before_;
  bool is_inside_autocast_ = false;
  RegionId current_;
};

}  // namespace trireme
