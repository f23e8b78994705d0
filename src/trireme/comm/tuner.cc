#include "trireme/comm/tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/philox.h"

namespace trireme {
namespace {

constexpr int32_t kRandomPoints = 10;
constexpr int32_t kPoints = 15;
constexpr double kExploration = 0.1;  // xi of the expected improvement
constexpr int32_t kCandidates = 24;   // along each side
constexpr double kWidth = 0.3;        // of the kernel, of a side
constexpr double kNoise = 1e-6;

// In the unit square.
using Point = std::array<double, 2>;

double covariance(const Point& a, const Point& b) {
  const double x = a[0] - b[0];
  const double y = a[1] - b[1];
  return std::exp(-(x * x + y * y) / (2 * kWidth * kWidth));
}

// A Gaussian process of mean 0 and variance 1 through values (Rasmussen and Williams 2006,
// algorithm 2.1).
class GaussianProcess {
 public:
  GaussianProcess(std::vector<Point> points, std::vector<double> values)
      : points_(std::move(points)), weights_(std::move(values)) {
    const size_t n = points_.size();
    factor_.assign(n, std::vector<double>(n, 0));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = covariance(points_[i], points_[j]) + (i == j ? kNoise : 0);
        for (size_t k = 0; k < j; ++k) sum -= factor_[i][k] * factor_[j][k];
        factor_[i][j] = i == j ? std::sqrt(std::max(sum, kNoise)) : sum / factor_[j][j];
      }
    }
    weights_ = solve(weights_);
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k) weights_[i] -= factor_[k][i] * weights_[k];
      weights_[i] /= factor_[i][i];
    }
  }

  struct Belief {
    double mean = 0;
    double deviation = 0;
  };
  [[nodiscard]] Belief at(const Point& point) const {
    std::vector<double> to_points;
    Belief belief;
    for (size_t i = 0; i < points_.size(); ++i) {
      to_points.push_back(covariance(point, points_[i]));
      belief.mean += to_points[i] * weights_[i];
    }
    double variance = 1;
    for (const double part : solve(to_points)) variance -= part * part;
    belief.deviation = std::sqrt(std::max(variance, 0.0));
    return belief;
  }

 private:
  // With the lower factor.
  [[nodiscard]] std::vector<double> solve(std::vector<double> values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t k = 0; k < i; ++k) values[i] -= factor_[i][k] * values[k];
      values[i] /= factor_[i][i];
    }
    return values;
  }

  std::vector<Point> points_;
  std::vector<double> weights_;
  std::vector<std::vector<double>> factor_;
};

// Of a value below `best`, by more than the exploration asks for.
double expected_improvement(const GaussianProcess::Belief& belief, double best) {
  if (belief.deviation < 1e-9) return 0;
  const double gain = best - belief.mean - kExploration;
  const double z = gain / belief.deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
  const double probability = std::erfc(-z / std::sqrt(2.0)) / 2;
  return gain * probability + belief.deviation * density;
}

int64_t size_at(const SizeRange& range, double place) {
  const double ratio = static_cast<double>(range.most) / static_cast<double>(range.least);
  return std::llround(static_cast<double>(range.least) * std::pow(ratio, place));
}

Point random_point(int32_t index) {
  const PhiloxCounter words = philox({static_cast<uint32_t>(index), 0, 0, 0}, {1, 1});
  return {static_cast<double>(words[0]) * 0x1p-32, static_cast<double>(words[1]) * 0x1p-32};
}

// Values with a mean of 0 and a deviation of 1.
std::vector<double> normalised(std::vector<double> values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double variance = 0;
  for (const double value : values) {
    variance += (value - mean) * (value - mean) / static_cast<double>(values.size());
  }
  const double deviation = variance > 0 ? std::sqrt(variance) : 1;
  for (double& value : values) value = (value - mean) / deviation;
  return values;
}

Point most_promising(const std::vector<Point>& points, const std::vector<double>& steps) {
  const std::vector<double> values = normalised(steps);
  const GaussianProcess process(points, values);
  const double best = *std::min_element(values.begin(), values.end());
  Point chosen = {};
  double most = -1;
  for (int32_t i = 0; i < kCandidates * kCandidates; ++i) {
    const Point point = {(i % kCandidates) / (kCandidates - 1.0),
                         (i / kCandidates) / (kCandidates - 1.0)};
    const double gain = expected_improvement(process.at(point), best);
    if (gain <= most) continue;
    most = gain;
    chosen = point;
  }
  return chosen;
}

}  // namespace

Tuned tune(const TuningSpace& space, const std::function<SimTime(const PolicyOptions&)>& step_of) {
  std::vector<Point> points;
  std::vector<double> steps;
  std::optional<Tuned> best;
  for (int32_t i = 0; i < kPoints; ++i) {
    points.push_back(i < kRandomPoints ? random_point(i) : most_promising(points, steps));
    const PolicyOptions options{.chunk_bytes = size_at(space.chunk_bytes, points.back()[0]),
                                .credit_bytes = size_at(space.credit_bytes, points.back()[1])};
    const SimTime step = step_of(options);
    steps.push_back(static_cast<double>(step));
    if (!best.has_value() || step < best->step) best = Tuned{.options = options, .step = step};
  }
  best->num_tried = kPoints;
  return *best;
}

}  // namespace trireme
