// Profile: seconds and bytes of each block of a model on one device, for several sizes of a
// micro-batch, and where each number comes from.
//
// A block is what lies between two neighbouring places where few bytes cross (graph/cuts.h); blocks
// follow each other and cover the model. Text form: YAML, one line a size:
//
//   format: trireme-profile-1
//   model: gpt.pt2
//   num_nodes: 61
//   device: EPYC 7B13, 1 thread
//   blocks:
//     - first_node: linear
//       first_module: h.0.fc
//       update: {seconds: 0.001, spread: 1e-05, from: measured}
//       sizes:
//         - {micro_batch: 4, forward: {seconds: 0.002, spread: 1e-05, from: measured}, ...,
//            kept_bytes: {bytes: 4096, from: measured}}
//
// `seconds` is the median, over steps, of the mean over micro-batches, and `spread` the median
// distance from it. A pass that is absent was not measured; fill_profile() takes it from another
// profile, such as the analytic one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

enum class CostSource : uint8_t { kMeasured, kAnalytic };
[[nodiscard]] std::string_view to_text(CostSource source);

struct PassSeconds {
  double seconds = 0;
  double spread = 0;
  CostSource source = CostSource::kMeasured;
  bool operator==(const PassSeconds&) const = default;
};

struct KeptBytes {
  int64_t bytes = 0;
  CostSource source = CostSource::kMeasured;
  bool operator==(const KeptBytes&) const = default;
};

// The passes of a micro-batch through a block. kBackward is the whole of it, also where the other
// two are known.
enum class BlockPass : uint8_t {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kRecompute,
};
inline constexpr size_t kNumBlockPasses = 5;
[[nodiscard]] std::string_view to_text(BlockPass pass);

struct BlockSize {
  int64_t micro_batch = 1;                                         // samples
  std::array<std::optional<PassSeconds>, kNumBlockPasses> passes;  // by BlockPass
  std::optional<KeptBytes> kept_bytes;  // that a forward leaves for its backward
  bool operator==(const BlockSize&) const = default;
};

struct BlockProfile {
  std::string first_node;    // the first value that it makes
  std::string first_module;  // for people
  std::optional<PassSeconds> update;
  std::vector<BlockSize> sizes;  // by micro_batch, ascending
  bool operator==(const BlockProfile&) const = default;
};

struct Profile {
  std::string model;      // path of the archive, for people
  int64_t num_nodes = 0;  // of the model (graph/loss_items.h)
  std::string device;     // for people
  std::vector<BlockProfile> blocks;
  bool operator==(const Profile&) const = default;
};

// One sentence: a number that is negative or not finite, sizes that do not ascend, a block twice.
[[nodiscard]] Status verify_profile(const Profile& profile);

// Inverses of each other for every profile that verifies.
[[nodiscard]] std::string to_text(const Profile& profile);
[[nodiscard]] Result<Profile> parse_profile(std::string_view text);

// Takes from `other` what `profile` knows at no size: a pass, the update, the bytes. Error: they
// are not of the same blocks of the same model.
[[nodiscard]] Result<Profile> fill_profile(Profile profile, const Profile& other);

// Of one pass of a block at any size: on the line between the neighbouring sizes that know it, and
// beyond the last ones on the line through the last two; in proportion to the size where only one
// is known. Never negative. nullopt: no size knows the pass. REQUIRES: micro_batch >= 1.
[[nodiscard]] std::optional<double> seconds_at(const BlockProfile& block, BlockPass pass,
                                               int64_t micro_batch);
// The same for the bytes that are kept.
[[nodiscard]] std::optional<double> kept_bytes_at(const BlockProfile& block, int64_t micro_batch);

}  // namespace trireme
