// The step that `trireme simulate` and `trireme rehearse` are asked for: its schedule, its costs
// and the cluster that it is for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/predict.h"
#include "trireme/cli/request.h"

namespace trireme {

// Of StepRequest::what: a MODEL.pt2; a schedule by name; else it is a file with a schedule's text.
[[nodiscard]] bool is_archive(const std::string& name);
[[nodiscard]] bool is_builder_name(std::string_view name);
// "gpipe, 1f1b, ..."
[[nodiscard]] std::string builder_names();

// The files that the request reads.
[[nodiscard]] std::vector<NamedFile> step_inputs(const StepRequest& request);

// Errors: a file that cannot be read or is of another plan; a plan or a schedule that cannot be
// made. The schedule is verified, and so is the cluster.
[[nodiscard]] Result<Prediction> prediction_of(const StepRequest& request);

}  // namespace trireme
