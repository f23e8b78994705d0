// Tags of the executor's transfers: what a message is, so that transfers in flight together cannot
// be mistaken for each other, whatever order they arrive in.
//
//   bit   30     29 .. 26   25 .. 12      11      10 .. 0
//         kind   chunk      micro-batch   batch   part
//
// kind is 0 for activations and 1 for gradients; chunk is the receiver's; batch is its number's
// last bit, since of no more than two batches something travels; part counts the tensors of one
// Message. Both ends of a transfer make the same tag. A tag is never negative, which c10d asks for.
#pragma once

#include <cstdint>

#include "trireme/schedule/schedule.h"

namespace trireme {

inline constexpr int32_t kPartBits = 11;
inline constexpr int32_t kMicroBatchBits = 14;
inline constexpr int32_t kChunkBits = 4;
inline constexpr int32_t kMaxParts = 1 << kPartBits;
static_assert(kMaxMicroBatches == 1 << kMicroBatchBits);
static_assert(kMaxChunks == 1 << kChunkBits);
static_assert(1 + kChunkBits + kMicroBatchBits + 1 + kPartBits == 31);

// `step` counts the steps of the run. REQUIRES: `receive` is a receive in range, 0 <= part <
// kMaxParts.
[[nodiscard]] constexpr int32_t transfer_tag(const Action& receive, int64_t step, int32_t part) {
  const int32_t kind = receive.kind == ActionKind::kReceiveGradient ? 1 : 0;
  const auto batch = static_cast<int32_t>((step + receive.batch) & 1);
  const int32_t micro_batch =
      (kind << kChunkBits | receive.chunk) << kMicroBatchBits | receive.index;
  return ((micro_batch << 1 | batch) << kPartBits) | part;
}

}  // namespace trireme
