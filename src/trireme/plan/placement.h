// Placement: which stage and chunk a virtual stage is.
//
// With S stages and V chunks a stage, a model is cut into S x V virtual stages, in the order in
// which a sample passes them.
//
//   looped   chunk c of stage s is virtual stage c S + s (Narayanan et al., SC 2021)
//   v        the same for even c; odd chunks run backwards, c S + S-1-s, so that a stage hands its
//            activations to itself where the direction turns (Qi et al., 2024, ZB-V)
#pragma once

#include <cstdint>

namespace trireme {

enum class Placement : uint8_t { kLooped, kV };

// Its own inverse within a chunk: also the stage of a virtual stage.
[[nodiscard]] constexpr int32_t place_within_chunk(Placement placement, int32_t num_stages,
                                                   int32_t chunk, int32_t stage) {
  return placement == Placement::kV && chunk % 2 == 1 ? num_stages - 1 - stage : stage;
}

}  // namespace trireme
