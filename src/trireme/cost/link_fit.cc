#include "trireme/cost/link_fit.h"

#include <algorithm>
#include <array>

#include "trireme/base/median.h"
#include "trireme/base/philox.h"

namespace trireme {
namespace {

constexpr size_t kNumDraws = 400;
constexpr double kTail = 0.025;  // at either end

// Numbers that are the same in every run.
class Draws {
 public:
  size_t below(size_t bound) {
    if (next_ == block_.size()) {
      block_ = philox({static_cast<uint32_t>(counter_++), 0, 0, 0}, {0x70726f62, 0});
      next_ = 0;
    }
    return static_cast<size_t>((uint64_t{block_[next_++]} * bound) >> 32);
  }

 private:
  std::array<uint32_t, 4> block_{};
  size_t next_ = block_.size();
  uint64_t counter_ = 0;
};

double median_of_drawn(std::span<const double> values, Draws& draws) {
  std::vector<double> drawn(values.size());
  for (double& value : drawn) value = values[draws.below(values.size())];
  return median(std::move(drawn));
}

Estimate estimate(double value, std::vector<double> draws) {
  if (draws.empty()) return {value, value, value};
  std::ranges::sort(draws);
  const auto at = [&](double share) {
    return draws[static_cast<size_t>(share * static_cast<double>(draws.size() - 1))];
  };
  return {
      .value = value, .low = std::min(value, at(kTail)), .high = std::max(value, at(1 - kTail))};
}

}  // namespace

Estimate estimate_median(std::span<const double> values) {
  Draws draws;
  std::vector<double> medians;
  for (size_t i = 0; i < kNumDraws; ++i) medians.push_back(median_of_drawn(values, draws));
  return estimate(median({values.begin(), values.end()}), std::move(medians));
}

std::optional<LinkFit> fit_link(std::span<const TimedSize> sizes) {
  if (sizes.size() < 2) return std::nullopt;
  const TimedSize& shortest = sizes.front();
  const TimedSize& longest = sizes.back();
  const double more_bytes = longest.bytes - shortest.bytes;
  const double first = median(shortest.seconds);
  const double last = median(longest.seconds);
  if (more_bytes <= 0 || last <= first) return std::nullopt;
  Draws draws;
  std::vector<double> latencies;
  std::vector<double> bandwidths;
  for (size_t i = 0; i < kNumDraws; ++i) {
    const double drawn_first = median_of_drawn(shortest.seconds, draws);
    const double drawn_last = median_of_drawn(longest.seconds, draws);
    if (drawn_last <= drawn_first) continue;
    latencies.push_back(drawn_first);
    bandwidths.push_back(more_bytes / (drawn_last - drawn_first));
  }
  return LinkFit{.latency_s = estimate(first, std::move(latencies)),
                 .bytes_per_s = estimate(more_bytes / (last - first), std::move(bandwidths))};
}

}  // namespace trireme
