#include "trireme/torch/region_switch.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "trireme/torch/tensors.h"

namespace trireme {

RegionSwitch::RegionSwitch(const Graph& graph, bool builds_graph)
    : graph_(graph),
      builds_graph_(builds_graph),
      grad_before_(at::GradMode::is_enabled()),
      autocast_before_(at::autocast::is_autocast_enabled(at::kCPU)),
      dtype_before_(at::autocast::get_autocast_dtype(at::kCPU)) {
  enter(RegionId(0));
}

RegionSwitch::~RegionSwitch() {
  leave_autocast();
  at::GradMode::set_enabled(grad_before_);
  at::autocast::set_autocast_enabled(at::kCPU, autocast_before_);
  at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
}

void RegionSwitch::enter(RegionId region) {
  if (region == current_) return;
  current_ = region;
  std::vector<RegionId> path;
  for (RegionId r = region; r.value > 0; r = graph_.regions[r.value].parent) path.push_back(r);
  bool is_grad_enabled = builds_graph_;
  bool is_autocast_enabled = false;
  at::ScalarType dtype = at::kBFloat16;
  for (auto r = path.rbegin(); r != path.rend(); ++r) {
    const Region& scope = graph_.regions[r->value];
    if (scope.kind == Region::Kind::kGradMode) {
      is_grad_enabled = scope.is_enabled && builds_graph_;
    } else {
      is_autocast_enabled = scope.is_enabled;
      dtype = scalar_type(scope.autocast_dtype);
    }
  }
  if (!is_autocast_enabled) leave_autocast();
  at::GradMode::set_enabled(is_grad_enabled);
  at::autocast::set_autocast_enabled(at::kCPU, is_autocast_enabled);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
  if (is_autocast_enabled && !is_inside_autocast_) {
    at::autocast::increment_nesting();
    is_inside_autocast_ = true;
  }
}

void RegionSwitch::leave_autocast() {
  if (!is_inside_autocast_) return;
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  is_inside_autocast_ = false;
}

}  // namespace trireme
