#include "trireme/cost/profile.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr double kMostSeconds = 1e9;

Status verify_seconds(const BlockProfile& block, std::string_view what,
                      const std::optional<PassSeconds>& pass) {
  if (!pass.has_value()) return Status();
  for (const double number : {pass->seconds, pass->spread}) {
    if (number >= 0 && number <= kMostSeconds) continue;
    return Error{fmt::format("block {}: {} takes {} s, not 0 to {:g}", in_quotes(block.first_node),
                             what, number, kMostSeconds)};
  }
  return Status();
}

Status verify_block(const BlockProfile& block) {
  TRIREME_TRY(verify_seconds(block, "update", block.update));
  int64_t before = 0;
  for (const BlockSize& size : block.sizes) {
    if (size.micro_batch <= before) {
      return Error{fmt::format("block {}: micro_batch {} after {}; the sizes are to ascend from 1",
                               in_quotes(block.first_node), size.micro_batch, before)};
    }
    before = size.micro_batch;
    for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
      TRIREME_TRY(verify_seconds(block, to_text(static_cast<BlockPass>(pass)), size.passes[pass]));
    }
    if (!size.kept_bytes.has_value()) continue;
    if (size.kept_bytes->bytes >= 0 && size.kept_bytes->bytes <= kMostBytes) continue;
    return Error{fmt::format("block {}: kept_bytes is {}, not 0 to 2^60",
                             in_quotes(block.first_node), size.kept_bytes->bytes)};
  }
  return Status();
}

struct Point {
  double size = 0;
  double value = 0;
};

// See seconds_at().
std::optional<double> value_at(const std::vector<Point>& points, double size) {
  if (points.empty()) return std::nullopt;
  if (points.size() == 1) return points[0].value * size / points[0].size;
  size_t next = 1;
  while (next + 1 < points.size() && points[next].size < size) ++next;
  const Point& a = points[next - 1];
  const Point& b = points[next];
  return std::max(0.0, a.value + (b.value - a.value) * (size - a.size) / (b.size - a.size));
}

// A pass is of one profile at all sizes: a line from a measured point to another would say little.
void fill_sizes(BlockProfile& block, const BlockProfile& filler) {
  std::array<bool, kNumBlockPasses> is_known = {};
  for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
    is_known[pass] = seconds_at(block, static_cast<BlockPass>(pass), 1).has_value();
  }
  const bool knows_bytes = kept_bytes_at(block, 1).has_value();
  for (const BlockSize& size : filler.sizes) {
    auto place =
        std::ranges::lower_bound(block.sizes, size.micro_batch, {}, &BlockSize::micro_batch);
    if (place == block.sizes.end() || place->micro_batch != size.micro_batch) {
      place = block.sizes.insert(place, {.micro_batch = size.micro_batch});
    }
    for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
      if (!is_known[pass]) place->passes[pass] = size.passes[pass];
    }
    if (!knows_bytes) place->kept_bytes = size.kept_bytes;
  }
}

}  // namespace

std::string_view to_text(CostSource source) {
  return source == CostSource::kMeasured ? "measured" : "analytic";
}

std::string_view to_text(BlockPass pass) {
  constexpr std::array<std::string_view, kNumBlockPasses> kNames = {
      "forward", "backward", "input_gradient", "weight_gradient", "recompute"};
  return kNames[static_cast<size_t>(pass)];
}

Status verify_profile(const Profile& profile) {
  std::set<std::string_view> names;
  for (const BlockProfile& block : profile.blocks) {
    if (!names.insert(block.first_node).second) {
      return Error{fmt::format("block {} is there twice", in_quotes(block.first_node))};
    }
    TRIREME_TRY(verify_block(block));
  }
  return Status();
}

Result<Profile> fill_profile(Profile profile, const Profile& other) {
  if (profile.num_nodes != other.num_nodes) {
    return Error{fmt::format("the profile is of a model of {} nodes, not of {}; make it again",
                             profile.num_nodes, other.num_nodes)};
  }
  if (profile.blocks.size() != other.blocks.size()) {
    return Error{fmt::format("the profile has {} blocks and the model {}; make it again",
                             profile.blocks.size(), other.blocks.size())};
  }
  for (size_t b = 0; b < profile.blocks.size(); ++b) {
    BlockProfile& block = profile.blocks[b];
    const BlockProfile& filler = other.blocks[b];
    if (block.first_node != filler.first_node) {
      return Error{
          fmt::format("block {} of the profile begins with {}, and of the model with {}; "
                      "make it again",
                      b, in_quotes(block.first_node), in_quotes(filler.first_node))};
    }
    if (!block.update.has_value()) block.update = filler.update;
    fill_sizes(block, filler);
  }
  return profile;
}

std::optional<double> seconds_at(const BlockProfile& block, BlockPass pass, int64_t micro_batch) {
  std::vector<Point> points;
  for (const BlockSize& size : block.sizes) {
    const std::optional<PassSeconds>& known = size.passes[static_cast<size_t>(pass)];
    if (known.has_value()) {
      points.push_back({static_cast<double>(size.micro_batch), known->seconds});
    }
  }
  return value_at(points, static_cast<double>(micro_batch));
}

std::optional<double> kept_bytes_at(const BlockProfile& block, int64_t micro_batch) {
  std::vector<Point> points;
  for (const BlockSize& size : block.sizes) {
    if (size.kept_bytes.has_value()) {
      points.push_back(
          {static_cast<double>(size.micro_batch), static_cast<double>(size.kept_bytes->bytes)});
    }
  }
  return value_at(points, static_cast<double>(micro_batch));
}

}  // namespace trireme
