#include "trireme/worker/measured_step.h"

#include <algorithm>

namespace trireme {

void add_measured(const RunSetup& setup, std::vector<double> step_seconds,
                  const std::vector<int64_t>& peak_bytes, nlohmann::ordered_json& result) {
  constexpr size_t kMostWarmUpSteps = 5;
  const size_t warm_up = std::min(kMostWarmUpSteps, step_seconds.size() / 2);
  step_seconds.erase(step_seconds.begin(), step_seconds.begin() + static_cast<int64_t>(warm_up));
  const auto middle = step_seconds.begin() + static_cast<int64_t>(step_seconds.size() / 2);
  std::nth_element(step_seconds.begin(), middle, step_seconds.end());
  result["step_seconds"] = *middle;
  if (!peak_bytes.empty()) result["peak_bytes"] = peak_bytes;
  if (!setup.prediction.has_value()) return;
  result["predicted"] = {{"step_seconds", setup.prediction->step_s},
                         {"peak_bytes", setup.prediction->peak_bytes},
                         {"notes", setup.prediction->notes}};
}

}  // namespace trireme
