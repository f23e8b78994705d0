#include "trireme/worker/measured_step.h"

#include <algorithm>

namespace trireme {

double median_after_warm_up(std::vector<double> of_steps) {
  constexpr size_t kMostWarmUpSteps = 5;
  const size_t warm_up = std::min(kMostWarmUpSteps, of_steps.size() / 2);
  of_steps.erase(of_steps.begin(), of_steps.begin() + static_cast<int64_t>(warm_up));
  const auto middle = of_steps.begin() + static_cast<int64_t>(of_steps.size() / 2);
  std::nth_element(of_steps.begin(), middle, of_steps.end());
  return *middle;
}

void add_measured(const RunSetup& setup, const std::vector<double>& of_steps,
                  const StepMetrics& last, nlohmann::ordered_json& result) {
  result["step_seconds"] = median_after_warm_up(of_steps);
  if (!last.peak_bytes.empty()) result["peak_bytes"] = last.peak_bytes;
  if (!last.compute_cpu_seconds.empty()) result["compute_cpu_seconds"] = last.compute_cpu_seconds;
  if (!last.links.empty()) result["links"] = links_json(last.links);
  if (!setup.prediction.has_value()) return;
  result["predicted"] = {{"step_seconds", setup.prediction->step_s},
                         {"peak_bytes", setup.prediction->peak_bytes},
                         {"notes", setup.prediction->notes}};
}

}  // namespace trireme
