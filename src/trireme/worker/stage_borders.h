// StageBorders: what crosses the borders between the stages of a plan, kept so that one stage can
// run alone.
//
//   borders.keep(kernels, send)         what the stage sends is remembered
//   borders.give(kernels, receive)      and is what another one, or the same later, receives
//
// Kept values come from a real micro-batch: integers are indices that exist, floats have the
// magnitudes that they have. Where another micro-batch has other sizes, they are cut or repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/kernels.h"

namespace trireme {

class StageBorders {
 public:
  // `border`: the virtual stage that begins behind it. `send`: SA or SG, whose memory is released;
  // with drop() that is all.
  static Status drop(Kernels& kernels, const Action& send);
  Status keep(Kernels& kernels, const Action& send, int32_t border);
  // `receive`: RA or RG. REQUIRES: its counterpart was kept.
  Status give(Kernels& kernels, const Action& receive, int32_t border) const;

 private:
  using Parts = std::vector<std::vector<std::byte>>;
  std::map<int32_t, Parts> activations_;
  std::map<int32_t, Parts> gradients_;
};

}  // namespace trireme
