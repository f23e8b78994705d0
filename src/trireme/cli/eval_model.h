// EvalModel: a model whose evaluation runs other code than its training, as an archive of its own
// that takes the trained weights by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"
#include "trireme/import/archive.h"
#include "trireme/plan/partition.h"
#include "trireme/plan/plan.h"

namespace trireme {

struct EvalModel {
  std::unique_ptr<Archive> archive;
  Graph graph;
  Partition partition;  // over as many stages as the trained model
  // By input of `graph`: the input of the trained graph that has its values; nullopt for what the
  // archive itself brings: the user's inputs, constants, buffers that are not saved.
  std::vector<std::optional<int32_t>> sources;
};

// `plan` is that of the trained model. Errors: those of an archive and of a plan; parameters and
// persistent buffers of the two models that differ in name, size or dtype.
[[nodiscard]] Result<EvalModel> open_eval_model(const std::string& path, const Graph& trained,
                                                const Plan& plan, const RunRequest& request);

// Parameter or persistent buffer.
[[nodiscard]] bool is_saved(const GraphInput& input);

}  // namespace trireme
