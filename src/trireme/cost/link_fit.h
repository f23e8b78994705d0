// fit_link(): alpha and beta of a link from messages that were timed, with confidence intervals.
//
//   seconds = latency + bytes / bandwidth
//
// is the line through the median times of the shortest and the longest messages: what is between
// them takes less than that where buffers on the way swallow it, and would bend a line through all
// away from both. The intervals are of the percentile bootstrap (Efron & Tibshirani 1993, ch. 13):
// the line is drawn again through medians of times that are drawn anew, always by the same random
// numbers.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace trireme {

// 95 % of the fits lie in low .. high.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
  bool operator==(const Estimate&) const = default;
};

struct LinkFit {
  Estimate latency_s;
  Estimate bytes_per_s;
  bool operator==(const LinkFit&) const = default;
};

// Times of messages of one size.
struct TimedSize {
  double bytes = 0;
  std::vector<double> seconds;
};

// The median and its bootstrap interval. REQUIRES: one value at least.
[[nodiscard]] Estimate estimate_median(std::span<const double> values);

// Sizes ascend. nullopt: fewer than two were timed, or the longest took no longer.
[[nodiscard]] std::optional<LinkFit> fit_link(std::span<const TimedSize> sizes);

}  // namespace trireme
